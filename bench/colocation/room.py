"""A place to share a GPU, and workers that come and go in it: for measurements that are no table of pairs and modes."""
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import tempfile
import time

import machine
import measures
import modes
import stage
import trace
import ways


@dataclasses.dataclass(frozen=True)
class Tallyd:
    """Options of a tallyd of its own; the environment is its executors', too."""
    arguments: tuple
    environment: dict

    def enter(self, root, name, smoke):
        @contextlib.contextmanager
        def entered():
            with tempfile.TemporaryDirectory(prefix="tally-bench-") as cache, \
                 ways.daemon(root, "sim" if smoke else "cuda", arguments=["--cache-directory", cache, *self.arguments],
                             env=self.environment, name=name) as way:
                yield modes.Place(name, way)
        return entered()


def under(*arguments, **environment):
    return Tallyd(arguments, environment)


class Room:
    """`kind`: a Tallyd, or a place of modes.py. A context: all ends with it."""

    def __init__(self, root, options, name, kind):
        self.options, self.stack, self.num_workers = options, contextlib.ExitStack(), 0
        self.turns = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-turns-"))
        entered = modes.enter(root, kind, options.smoke) if isinstance(kind, str) else kind.enter(root, name, options.smoke)
        self.place = self.stack.enter_context(entered)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stack.close()

    @contextlib.contextmanager
    def worker(self, role, program, environment=None):
        with self.workers([(role, program, environment, role)]) as (worker,):
            yield worker

    @contextlib.contextmanager
    def workers(self, wanted):
        """Of (role, program, environment, as what it is treated: "service" or "training"); started at once, built one after another."""
        turn = os.path.join(self.turns, str(self.num_workers))
        with contextlib.ExitStack() as ends:
            found = []
            for role, program, environment, treated_as in wanted:
                self.num_workers += 1
                found.append(stage.Worker(self.place, role, program, self.num_workers, turn, environment, treated_as))
                ends.callback(found[-1].child.end, 8)
            stage.make_all_ready(found, self.options.start_limit)
            yield found

    def serve(self, service, capacity, seconds, seed):
        return service.serve(self.options.load, capacity, seconds, time.monotonic() + 0.2, seed)

    @staticmethod
    def serve_at_once(asked, seconds):
        """The answers of several services, of [(service, arrivals)]."""
        begin = time.monotonic() + 0.2
        with concurrent.futures.ThreadPoolExecutor(max(1, len(asked))) as threads:
            return list(threads.map(lambda of: of[0].serve_at(of[1], seconds, begin), asked))

    @contextlib.contextmanager
    def working(self, training):
        """The training works meanwhile. Gives what tells its steps per second between two moments, afterwards."""
        started, completions = time.monotonic(), []
        training.child.say(json.dumps({"train": True}))
        try:
            yield lambda begin, end: measures.rate(started, completions, begin, end - begin)
        finally:
            training.child.say(json.dumps({"stop": True}))
            completions.extend(training.answer(stage.LIMIT_S)["completions"])

    def beside(self, trainings, work):
        """(what `work` gave, each training's steps per second meanwhile)."""
        with contextlib.ExitStack() as stack:
            rates = [stack.enter_context(self.working(training)) for training in trainings]
            time.sleep(0.1 if self.options.smoke else stage.LEAD_S)
            begin = time.monotonic()
            found = work()
            end = time.monotonic()
        return found, [rate(begin, end) for rate in rates]

    def solo(self, training):
        return self.beside([training], lambda: time.sleep(self.options.seconds / 2))[1][0]


def arrivals(load, capacity, seconds, seed):
    """`load`: per cent of `capacity`; even random intervals."""
    return trace.arrivals(seconds, load / 100, capacity, seed, trace.KINDS["poisson"])


def own_p99(cell):
    return machine.quantile(cell["own_ms"], 0.99)


def p99(cell):
    return machine.quantile(cell["latencies_ms"], 0.99)
