"""What the programs of this folder share: cases that are made, warmed up, measured when told to, and told in JSON.

A program says {"imported": true} before it calls CUDA, {"ready": NAME} when a case is warmed up, and {"case": NAME, ...}
when it is measured. It waits for a line after each, so that the one who runs it can look at Tally's counters. Measured
are repetitions of the case's steps, each from the same beginning: microseconds per step, and the digest of what they
end with, which has to be the same each time.
"""
import argparse
import hashlib
import json
import re
import sys
import time
import traceback


is_small = False  # --small: for a GPU in software; set before cases are made


class Case:
    """`reset` sets the data to what it was, `step(i)` launches, `wait` waits for all of it, `result` gives bytes."""
    steps = 20

    def reset(self):
        pass

    def step(self, number):
        raise NotImplementedError

    def wait(self):
        raise NotImplementedError

    def result(self):
        raise NotImplementedError

    def repetition(self):
        """Microseconds per step."""
        self.reset()
        self.wait()
        began = time.perf_counter()
        for number in range(self.steps):
            self.step(number)
        self.wait()
        return (time.perf_counter() - began) / self.steps * 1e6

    def digest(self):
        return hashlib.sha256(self.result()).hexdigest()[:16]


def _say(**what):
    print(json.dumps(what), flush=True)


def _ask(**what):
    _say(**what)
    if not sys.stdin.readline():
        sys.exit(0)


def _measure(name, make, options):
    case = make()
    case.steps = options.steps or case.steps
    began = time.monotonic()
    while True:
        case.repetition()
        if time.monotonic() >= began + options.warm:
            break
    digests = {case.digest()}
    _ask(ready=name)
    samples = []
    began = time.perf_counter()
    while not samples or time.perf_counter() < began + options.seconds:
        samples.append(case.repetition())
    elapsed = time.perf_counter() - began
    digests.add(case.digest())
    if len(digests) > 1:
        raise RuntimeError(f"repetitions end with different bits: {sorted(digests)}")
    _ask(case=name, samples=samples, steps=case.steps, elapsed=elapsed, digest=digests.pop())


def main(cases):
    """`cases`: what makes each, by name, in the order in which they run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=1, help="measured, per case (default: %(default)s)")
    options.add_argument("--warm", type=float, default=1, help="not measured, before that (default: %(default)s)")
    options.add_argument("--steps", type=int, help="of a repetition; as the case says by default")
    options.add_argument("--small", action="store_true", help="as little work as a case can do")
    options.add_argument("--only", default="", help="cases whose names this regular expression finds")
    chosen = options.parse_args()
    global is_small  # pylint: disable=global-statement
    is_small = chosen.small
    _ask(imported=True)
    for name, make in cases.items():
        if re.search(chosen.only, name):
            try:
                _measure(name, make, chosen)
            except Exception as error:  # pylint: disable=broad-exception-caught
                traceback.print_exc()
                _ask(case=name, failure=f"{type(error).__name__}: {error}"[:300])
    _say(done=True)
