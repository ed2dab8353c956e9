#!/usr/bin/env python3
"""What it costs to run a best-effort kernel in another form, and how soon it then gives the GPU back.

    python3 bench/preemption/preemption.py [--minutes 8] [--output FILE.md] [--json FILE.json]

For every kernel: its time in each form against the original; then the latency of a tiny high-priority request at a
random moment beside it: natively, under tally with kernels as they are, and under tally with the forms that it chose.
Results are compared bit for bit. From a bundle (tools/bundle) or a build folder; Triton and CuPy kernels where those
packages are. Without a GPU only --smoke makes sense.
"""
import argparse
import contextlib
import importlib.util
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import machine
import output
import page
import runs
import ways
# pylint: enable=wrong-import-position

SMOKE_FORMS = ["slices:4", "workers:1"]
FORMS = ["slices:4", "slices:16", "workers:2", "workers:8", "workers:32"]
PYTHON_PACKAGES = ("torch", "triton", "cupy")


def read_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=8, help="about how long it may take (default: %(default)s)")
    options.add_argument("--threshold-us", type=float, default=31.6, help="turnaround threshold (default: %(default)s)")
    options.add_argument("--kernels", default="", help="comma-separated (default: all)")
    options.add_argument("--parts", default="forms,requests", help="comma-separated (default: %(default)s)")
    options.add_argument("--output", help="Markdown file; it also goes to stdout")
    options.add_argument("--json", dest="json_path", help="JSON file")
    options.add_argument("--smoke", action="store_true", help="does everything run? Software driver, no numbers")
    return options.parse_args()


class Bench:
    def __init__(self, options):
        self.options = options
        self.root = ways.find_root()
        self.driver = "sim" if options.smoke else "cuda"
        self.native = None if options.smoke else ways.Native()
        self.began = time.monotonic()
        has_python = not options.smoke and all(importlib.util.find_spec(name) for name in PYTHON_PACKAGES)
        names = options.kernels.split(",") if options.kernels else []
        self.programs = runs.programs(self.root, names, has_python, 1000 if options.smoke else 1)
        self.rows = {program.name: {"kernel": program.name, "forms": {}, "requests": {}} for program in self.programs}
        self.requests_alone = {}  # latencies by way
        self.facts = machine.describe(self.root, PYTHON_PACKAGES)

    def progress(self, sentence):
        print(f"[{time.monotonic() - self.began:5.0f} s] {sentence}", file=sys.stderr, flush=True)

    def is_over(self, share=1.0):
        return time.monotonic() - self.began > self.options.minutes * 60 * share

    def daemon(self, stack, name, *arguments, form=None):
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        return stack.enter_context(ways.daemon(self.root, self.driver, arguments=["--cache-directory", cache, *arguments],
                                               env={"TALLY_FORCE_FORM": form} if form else None, name=name))

    def launches(self, us, seconds):
        return max(20, min(200_000, int(seconds * 1e6 / us)))

    def attempt(self, place, key, measure):
        """Puts what `measure` returns at place[key], or the reason why there is nothing."""
        try:
            place[key] = measure()
        except (ways.Failed, OSError) as failure:
            place[key] = {"failed": str(failure)}
            self.progress(f"failed: {failure}")

    def alone(self, way, program, launches):
        result = runs.alone(way, program, launches, settle_s=0)
        return {"us": result.us, "digest": result.digest}

    def us_per_launch(self, way, program):
        """About; looked for once. Nothing if the program does not run."""
        row = self.rows[program.name]
        if "first" not in row:
            self.attempt(row, "first", lambda: self.alone(way, program, 40))
        return row["first"].get("us")

    def measure_forms(self):
        """Every kernel in every form, the original first and last; if requests are to follow, in half of the time."""
        with contextlib.ExitStack() as stack:
            original = self.native or self.daemon(stack, "original")
            forms = [(form, self.daemon(stack, form, form=form)) for form in ["original", *(SMOKE_FORMS if self.options.smoke else FORMS)]]
            for program in self.programs:
                if self.is_over(0.5 if "requests" in self.options.parts else 1.0):
                    return
                self.progress(f"forms: {program.name}")
                row = self.rows[program.name]
                us = self.us_per_launch(original, program)
                if us is None:
                    continue
                launches = self.launches(us, 0.05 if self.options.smoke else 0.3)
                self.attempt(row["forms"], "native", lambda: self.alone(original, program, launches))
                for form, way in forms:
                    before = way.ctl("kernels")
                    self.attempt(row["forms"], form, lambda: self.alone(way, program, launches))
                    row["forms"][form]["report"] = page.most_launched(before, way.ctl("kernels"))
                self.attempt(row["forms"], "native again", lambda: self.alone(original, program, launches))

    def measure_requests(self):
        with contextlib.ExitStack() as stack:
            threshold = ["--turnaround-us", f"{self.options.threshold_us:g}"]
            as_they_are = self.daemon(stack, "as they are", "--transforms", "none")
            chosen = self.daemon(stack, "chosen", "--transforms", "all", *threshold)
            all_ways = [(way.name, way, stack.enter_context(contextlib.closing(runs.Requests(way, self.root))))
                        for way in (self.native, as_they_are, chosen) if way is not None]
            seconds = 0.2 if self.options.smoke else 1.5
            self.requests_alone = {name: requests.measure(seconds) for name, _, requests in all_ways}
            for program in self.programs:
                if self.is_over():
                    return
                self.progress(f"requests: {program.name}")
                row = self.rows[program.name]
                settle = 0 if self.options.smoke else 1.5
                us = self.us_per_launch(self.native or as_they_are, program)
                if us is None:
                    continue
                launches = self.launches(us, 0.6 if self.options.smoke else 4)
                before = chosen.ctl("kernels")
                for name, way, requests in all_ways:
                    self.attempt(row["requests"], name, lambda: vars(runs.beside(
                        way, requests, program, launches, seconds, settle if way is chosen else 0)))
                row["chosen"] = page.most_launched(before, chosen.ctl("kernels"))

    def write(self):
        """After every part: a run that is cut short leaves what it has."""
        text = page.markdown(self.facts, self.rows.values(), self.requests_alone, self.options)
        output.write(text, {"machine": self.facts, "alone": self.requests_alone, "rows": list(self.rows.values())}, self.options)
        return text


def main():
    options = read_options()
    bench = Bench(options)
    parts = {"forms": bench.measure_forms, "requests": bench.measure_requests}
    for part in options.parts.split(","):
        if part not in parts:
            sys.exit(f"preemption.py: no part is called '{part}': forms, requests")
        try:
            parts[part]()
        finally:
            text = bench.write()
    print(text)
    problems = page.problems(bench.rows.values())
    if problems:
        sys.exit("preemption.py: " + "; ".join(problems))


if __name__ == "__main__":
    try:
        main()
    except ways.Failed as failure_of_all:
        sys.exit(f"preemption.py: {failure_of_all}")
