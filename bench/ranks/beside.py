#!/usr/bin/env python3
"""A service on the last GPU, beside a training of a rank on every GPU, in several modes of sharing; or beside a CUDA
graph that is spread over all of them.

    python3 bench/ranks/beside.py --gpus 2 --output beside.md --json beside.json
    python3 bench/ranks/beside.py --gpus 2 --training lu:spread --modes tally

Says the service's own p99 alone and beside the training, milliseconds a step without and with the service, whether the
losses of all ranks are the native ones, bit for bit, and how often contexts were descheduled. Modes are those of
bench/colocation (modes.py), services those of its catalogue. A step of a graph is a launch, whose residual is checked.
"""
import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(HERE, "..", folder) for folder in ("support", "colocation", "taskgraph")]
# pylint: disable=wrong-import-position
import machine
import modes
import output
import ranks
import stage
import ways
from taskgraph import SETTLED_AFTER
# pylint: enable=wrong-import-position

ALONE_S = 2.0  # of the training, before the first request
# LU and Cholesky of 24k in 12 x 12 tiles, annotated (bench/task_graphs).
SPREAD = ("lu:spread", "cholesky:spread")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2, help="ranks (default: %(default)s)")
    parser.add_argument("--training", default="resnet50:ddp", help=f"one of {', '.join(ranks.TRAININGS + SPREAD)} (default: %(default)s)")
    parser.add_argument("--service", default="bert-graph", help="default: %(default)s")
    parser.add_argument("--modes", default="time-slicing,tally,tally:look-ahead+suspended", help="default: %(default)s")
    parser.add_argument("--load", type=float, default=50, help="per cent of the service's capacity (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="of requests (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="of the training: more than there is time for with requests (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run (default: %(default)s)")
    parser.add_argument("--json", dest="json_path", help="all times")
    parser.add_argument("--output", help="Markdown file; it also goes to stdout")
    options = parser.parse_args()
    if options.training in SPREAD and not all(mode.startswith("tally") for mode in options.modes.split(",")):
        parser.error("graphs are spread in modes of Tally only: --modes tally,...")
    return options


def split(ends, times_ms, begin, seconds):
    """(milliseconds of the steps that ended before `begin`, of those that were within the `seconds` after it)."""
    before = [took for end, took in zip(ends, times_ms) if end < begin]
    within = [took for end, took in zip(ends, times_ms) if end - took / 1e3 >= begin and end <= begin + seconds]
    return before, within


class Training:
    """torchrun, and when its ranks are past their warm-up. A context: what is left of it ends with it."""

    def __init__(self, place, options):
        self.stack = contextlib.ExitStack()
        directory = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-ranks-"))
        self.limit = time.monotonic() + options.timeout
        self.ready = os.path.join(directory, "ready")
        self.process = ranks.start(place, options, options.training, {"RANKS_READY": self.ready}, "training")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        ranks.end(self.process)
        self.stack.close()

    def await_ready(self):
        while not os.path.exists(self.ready):
            if self.process.poll() is not None or time.monotonic() > self.limit:
                raise ways.Failed("the training did not begin: " + self.finish(1)[1][-2000:])
            time.sleep(0.05)

    def is_running(self):
        return self.process.poll() is None

    def finish(self, seconds=None):
        """(exit status, what it printed): None if it had to be ended."""
        return ranks.finish(self.process, seconds or max(1, self.limit - time.monotonic()))

    def answer(self):
        """When steps ended, their milliseconds, a digest of all losses."""
        status, text = self.finish()
        said = ranks.answer_in(text) if status == 0 else None
        if said is None:
            raise ways.Failed(f"the training: {ranks.reason(status)}: {text[-2000:]}")
        return said


class SpreadGraph:
    """bench/task_graphs, launched until the requests are over. A context, as Training."""

    def __init__(self, root, place, options):
        self.limit = time.monotonic() + options.timeout
        self.launches, self.rest = [], []
        words = [os.path.join(root, "bench", "task_graphs"), "--problem", options.training.split(":")[0], "--n", "24000", "--tiles", "12",
                 "--mode", "graph", "--annotated", "--each", "--warm-ups", str(SETTLED_AFTER), "--seconds", str(options.timeout)]
        gpus = ",".join(map(str, range(options.gpus)))
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(place.command(words, "training"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                        env={**os.environ, "TALLY_GRAPHS": "spread", "CUDA_VISIBLE_DEVICES": gpus})
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["launch"]:
                self.launches.append((float(words[1]), float(words[2])))
            else:
                self.rest.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        ranks.kill(self.process)
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def await_ready(self):
        while len(self.launches) < SETTLED_AFTER:
            if not self.is_running() or time.monotonic() > self.limit:
                raise ways.Failed("the graph was not launched: " + "".join(self.rest)[-2000:])
            time.sleep(0.05)

    def is_running(self):
        return self.process.poll() is None

    def answer(self):
        ends, times = zip(*self.launches)
        return {"ends": ends, "times_ms": times, "digest": "residuals checked"}


def suspensions(place):
    return sum(row.get("num_suspensions", 0) for row in place.way.ctl("executors")) if hasattr(place.way, "ctl") else 0


def measure(root, options, mode, capacity):
    """One mode's numbers; `capacity` is the service's natively, measured if it is None."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(modes.enter(root, modes.place_of(mode), False))
        turns = stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-turns-"))
        service = stage.Worker(place, "service", options.service, 0, os.path.join(turns, "0"), {"CUDA_VISIBLE_DEVICES": str(options.gpus - 1)})
        stack.callback(lambda: service.child.end(8))
        service.make_ready(options.timeout)
        if capacity is None:
            capacity = max(service.per_second(1) for _ in range(2))
        alone = service.serve(options.load, capacity, options.seconds, time.monotonic() + 0.2, "alone")
        found = {"capacity": capacity, "alone": alone}
        is_spread = options.training in SPREAD
        with SpreadGraph(root, place, options) if is_spread else Training(place, options) as training:
            training.await_ready()
            time.sleep(ALONE_S)
            before, begin = suspensions(place), time.monotonic() + 0.2
            found["beside"] = service.serve(options.load, capacity, options.seconds, begin, "beside")
            found["suspensions"] = suspensions(place) - before
            has_outlived = training.is_running()
            if is_spread:
                found["graph"] = max(place.way.ctl("graphs"), key=lambda row: row["launches"])
            said = training.answer()
        if not has_outlived:
            raise ways.Failed("the training ended before the requests did: --steps with a higher number")
        found["digest"] = said["digest"]
        found["steps_alone_ms"], found["steps_beside_ms"] = split(said["ends"], said["times_ms"], begin, options.seconds)
        return found


def cell(times):
    return ranks.median_and_range(times) if times else "-"


def differs(results, row):
    """True if the losses are not those of the first mode that has any."""
    first = next((row["digest"] for row in results["runs"].values() if "digest" in row), None)
    return "digest" in row and row["digest"] != first


def page(results):
    text = [f"# {results['service']} on one of {results['gpus']} GPUs, {results['training']} with a rank on each", ""]
    text += [f"* {key}: {value}" for key, value in results["machine"].items()]
    text += ["", f"Load {results['load']:.0f} %. Own times of a request and of a step, ms; steps: median (10 to 90 %).", "",
             "| mode | requests | own p50, p99 alone | own p50, p99 beside | p99 over alone | wrong, unserved | a step without requests | with | losses | deschedulings |",
             "|---|---:|---|---|---:|---|---|---|---|---:|"]
    for mode, row in results["runs"].items():
        if "failed" in row:
            text.append(f"| {mode} | {row['failed'].splitlines()[0][:120]} |")
            continue
        alone, beside = ([machine.quantile(row[when]["own_ms"], q) for q in (0.5, 0.99)] for when in ("alone", "beside"))
        text.append(f"| {mode} | {len(row['beside']['own_ms'])} | {alone[0]:.2f}, {alone[1]:.2f} | {beside[0]:.2f}, {beside[1]:.2f} | "
                    f"{beside[1] / alone[1]:.2f} | {row['beside']['wrong']}, {row['beside']['unserved']} | {cell(row['steps_alone_ms'])} | "
                    f"{cell(row['steps_beside_ms'])} | {'DIFFER' if differs(results, row) else 'the first bits'} | {row['suspensions']} |")
    return "\n".join(text) + "\n"


def main():
    options = read_options()
    root = ways.find_root()
    chosen = options.modes.split(",")
    modes.check(chosen)
    results = {"machine": machine.describe(root, ("torch", "torchvision", "transformers")), "runs": {},
               **{key: getattr(options, key) for key in ("gpus", "training", "service", "load")}}
    capacity = None
    for mode in chosen:
        print(mode, file=sys.stderr, flush=True)
        try:
            results["runs"][mode] = measure(root, options, mode, capacity)
            capacity = results["runs"][mode]["capacity"]
        except (ways.Failed, OSError, subprocess.SubprocessError) as failure:
            results["runs"][mode] = {"failed": str(failure)}
        output.write(page(results), results, options)
    print(page(results))
    failed = [f"{mode}: {row['failed']}" for mode, row in results["runs"].items() if "failed" in row]
    failed += [f"{mode}: losses differ" for mode, row in results["runs"].items() if differs(results, row)]
    return failed


if __name__ == "__main__":
    ways.run_bench(main)
