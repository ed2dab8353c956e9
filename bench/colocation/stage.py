"""The processes of a group of modes: started at once, kept alive from cell to cell, and told to work."""
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time

import measures
import modes
import output
import stamps
import trace
from child import Child
from ways import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
LEAD_S = 0.8    # a training works that long before the first request may come
GRACE_S = 2.0   # after the last arrival, for a service that is behind
LIMIT_S = 60.0  # for an answer, beyond what was asked for
MOST_STARTS = 2
NUM_KERNELS = 40
COPY_TURNS = 2  # more of the same training, which are all in one mode, may be built beside the others, as many at a time

KEPT = ("latencies_ms", "own_ms", "unserved", "wrong")  # of a service's answer, where nobody asks for its GPU's clock


def requests(arrivals, begin):
    """What a service is asked."""
    return json.dumps({"arrivals": arrivals, "begin": begin, "grace": GRACE_S})


class Worker:
    """A service or a training in a place. It is started again once if it ends by itself. `treated_as`: the role whose priority it has."""

    def __init__(self, place, role, name, index, turn, environment=None, treated_as=None):
        self.place, self.role, self.program, self.turn = place, role, name, turn
        self.name = f"{place.name}: {role} {name}" + (f" {index + 1}" if index else "")
        self.environment, self.treated_as = environment or {}, treated_as or role
        self.child = None
        self.starts = 0
        self.facts = None
        self.failure = ""  # why it did not start
        self.start()

    def start(self):
        self.starts += 1
        self.facts = None
        words = [sys.executable, os.path.join(HERE, self.role + ".py"), self.program]
        # A process that uses all processors to build its model would slow those that start beside it.
        environment = {"TALLY_BENCH_TURN": self.turn, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1",
                       "TOKENIZERS_PARALLELISM": "false", **self.place.environment(self.treated_as), **self.environment}
        self.child = Child(self.place.command(words, self.treated_as), self.name, environment)

    def make_ready(self, timeout_s):
        if self.facts is not None and not self.child.is_running():
            reason = self.child.said()
            if self.starts >= MOST_STARTS:
                raise Failed(f"{self.name}: has ended, again: {reason}")
            self.child.end()
            self.start()
        if self.facts is None:
            try:
                self.facts = self.child.answer(timeout_s)
            except Failed as failure:
                if self.starts >= MOST_STARTS or self.child.is_running():
                    self.failure = str(failure)
                    self.starts = MOST_STARTS
                    self.facts = {}
                    self.child.kill()
                    raise
                self.child.end()
                self.start()
                self.facts = self.child.answer(timeout_s)

    def ask(self, request, timeout_s):
        self.child.say(request)
        return self.answer(timeout_s)

    def per_second(self, seconds):
        """A service's requests, back to back."""
        return self.ask(json.dumps({"capacity": seconds}), seconds + LIMIT_S)["per_second"]

    def serve(self, load, capacity, seconds, begin, seed):
        """What of a service's answer is kept; `load`: per cent of `capacity`."""
        return self.serve_at(trace.arrivals(seconds, load / 100, capacity, seed), seconds, begin)

    def serve_at(self, arrivals, seconds, begin):
        """The same of requests that come in `seconds`."""
        answer = self.ask(requests(arrivals, begin), seconds + GRACE_S + LIMIT_S)
        return {key: answer[key] for key in KEPT}

    def answer(self, timeout_s):
        """One that does not come ends the worker: the next one it gave would be of another request."""
        try:
            return self.child.answer(timeout_s)
        except Failed as failure:
            failure.state = self.place.state()  # before the worker's end changes it
            self.child.kill()
            raise


def make_all_ready(workers, limit_s):
    """All together within that time."""
    deadline = time.monotonic() + limit_s
    for worker in workers:
        worker.make_ready(max(1, deadline - time.monotonic()))


def measure_places(options, results, measure, markdown):
    """measure(place's name) for the programs natively, then for each other place of options.modes. The page and the results are written after
    each; a place that fails is in results["failures"], and without the native baseline the rest says nothing."""
    for place in dict.fromkeys(["native", *map(modes.place_of, options.modes)]):
        try:
            measure(place)
        except (Failed, OSError) as failure:
            results["failures"].append(f"{place}: {failure}")
            if place == "native":
                break
        output.write(markdown(results), results, options)
    print(markdown(results))


class Stage:
    """A context: what was started ends with it. `needs`: as plan.needs gives it. `progress` is called with sentences."""

    def __init__(self, root, needs, smoke, progress, start_limit_s):
        self.root, self.needs = root, needs
        self.smoke, self.progress, self.start_limit_s = smoke, progress, start_limit_s
        self.places, self.failed, self.workers = {}, {}, {}
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        # All are told before any is waited for.
        for worker in self.workers.values():
            with contextlib.suppress(OSError):
                worker.child.process.stdin.close()
        for worker in self.workers.values():
            worker.child.end(8)
        self.workers = {}
        self.stack.close()

    def _start(self):
        turns = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-turns-"))
        for name, here in self.needs.items():
            try:
                self.places[name] = self.stack.enter_context(modes.enter(self.root, name, self.smoke))
            except (Failed, OSError, subprocess.SubprocessError) as failure:
                self.failed[name] = str(failure)
                self.progress(f"{name}: {failure}")
                continue
            for (role, program), count in here.items():
                for index in range(count):
                    turn = os.path.join(turns, str(1 + index % COPY_TURNS if index else 0))
                    self.workers[name, role, program, index] = Worker(self.places[name], role, program, index, turn)
        deadline = time.monotonic() + self.start_limit_s
        for worker in list(self.workers.values()):
            try:
                worker.make_ready(max(1, deadline - time.monotonic()))
                built_s = worker.facts.get("built_s")
                self.progress(f"{worker.name} is there" + (f", built in {built_s:.0f} s" if built_s is not None else ""))
            except Failed as failure:  # its cells will say so
                self.progress(str(failure))

    def worker(self, place_name, role, name, index=0):
        if place_name in self.failed:
            raise Failed(self.failed[place_name])
        worker = self.workers[place_name, role, name, index]
        if worker.facts == {}:
            raise Failed(f"did not start: {worker.failure}")
        worker.make_ready(self.start_limit_s)
        return worker

    def digests(self):
        return {f"{place}|{role}|{name}": worker.facts["digest"] for (place, role, name, index), worker in self.workers.items()
                if worker.facts and index == 0}

    def facts(self):
        """What the workers said of themselves, by name."""
        return {worker.name: worker.facts for worker in self.workers.values() if worker.facts}

    def daemons(self):
        """What the tallyds say in the end, by mode: for finding out why a number is as it is."""
        found = {}
        for name, place in self.places.items():
            if hasattr(place.way, "ctl"):
                try:
                    kernels = sorted(place.way.ctl("kernels"), key=lambda row: -row["gpu_time_ns"])
                    found[name] = {"kernels": kernels[:NUM_KERNELS], "graphs": place.way.ctl("graphs"), "executors": place.way.ctl("executors"),
                                   "log": place.way.log()}
                except (Failed, OSError, ValueError, subprocess.SubprocessError) as failure:
                    found[name] = {"kernels": [], "graphs": [], "executors": [], "log": str(failure)}
        return found

    def capacity(self, service, seconds):
        """Requests per second, back to back, natively alone; the better of two, as the first warms the machine up."""
        worker = self.worker("native", "service", service)
        return max(worker.per_second(seconds) for _ in range(2))

    @staticmethod
    def calibrated(service):
        """While nothing else works."""
        return service and service.ask(json.dumps({"calibrate": True}), LIMIT_S)

    def measure(self, cell, seconds, capacity, kind="bursty"):
        """The numbers of a cell. Trainings work from before the first request until after the last."""
        place = modes.place_of(cell.mode)
        service = self.worker(place, "service", cell.service) if cell.service else None
        trainings = [self.worker(place, "training", cell.training, index) for index in range(cell.count)]
        record = {"seconds": seconds, "capacity": capacity, "trace": kind, "burstiness": dataclasses.asdict(trace.KINDS[kind]), "rates": []}
        told = []
        before = self.calibrated(service)
        started = time.monotonic()
        begin = started + (LEAD_S if trainings else 0) + 0.2
        try:
            for training in trainings:
                training.child.say(json.dumps({"train": True}))
                told.append(training)
            if service is not None:
                arrivals = trace.arrivals(seconds, cell.load, capacity, measures.seed_of(vars(cell)), trace.KINDS[kind])
                answer = service.ask(requests(arrivals, begin), seconds + LEAD_S + GRACE_S + LIMIT_S)
                record.update(answer)
            time.sleep(max(0, begin + seconds - time.monotonic()))
        finally:
            for training in told:
                with contextlib.suppress(Failed):  # what it has to say comes with its answer
                    training.child.say(json.dumps({"stop": True}))
            answers, failures = [], []
            for training in told:
                try:
                    answers.append(training.answer(LIMIT_S))
                except Failed as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]
        if service is not None:
            began, ended = record.pop("began_ns"), record.pop("ended_ns")
            record["gpu_us"] = [round((end - start) / 1e3, 1) for start, end in zip(began, ended)]
            record["waits_us"], record["clock_error_us"] = stamps.waits_us(record.pop("asked_ns"), began, before, self.calibrated(service))
        record["rates"] = [round(measures.rate(started, answer["completions"], begin, seconds), 5) for answer in answers]
        return record
