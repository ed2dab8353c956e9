#!/usr/bin/env python3
"""What it costs to run a best-effort kernel in another form, and how soon it then gives the GPU back.

    python3 bench/preemption/preemption.py [--minutes 8] [--output FILE.md] [--json FILE.json]
    python3 bench/preemption/preemption.py --parts requests --minutes 4          # what a request waits, 12 kernels
    python3 bench/preemption/preemption.py --parts requests --ways slices,workers --minutes 2

For every kernel: its time in each form against the original; then the latency of a tiny high-priority request at a
random moment beside it, in several ways (--ways): natively, under tally with kernels as they are, with the forms that
it chose, with the best number of slices, with the best number of persistent blocks.
Results are compared bit for bit. From a bundle (tools/bundle) or a build folder; Triton and CuPy kernels where those
packages are. Without a GPU only --smoke makes sense.
"""
import argparse
import contextlib
import importlib.util
import os
import shlex
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
# Of requests: the most telling ones first, in case the time ends.
REQUEST_KERNELS = ("pointer_chase", "short_blocks", "triton_rows", "matrix_product", "nvrtc_stencil", "elementwise_long", "stencil",
                   "sort_tiles", "triton_elementwise", "mandelbrot", "elementwise", "long_blocks")
# How tallyd is started for each way of --ways; natively it is not.
WAYS = {"native": None, "as-they-are": ["--transforms", "none"], "chosen": ["--transforms", "all"],
        "slices": ["--transforms", "slices"], "workers": ["--transforms", "workers"]}
# A program is given launches for so many times the time of the requests: it must be the last to end.
OUTLASTS = 1.4


def read_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=8, help="about how long it may take (default: %(default)s)")
    options.add_argument("--threshold-us", type=float, default=31.6, help="turnaround threshold (default: %(default)s)")
    options.add_argument("--kernels", default="", help="comma-separated (default: all)")
    options.add_argument("--parts", default="forms,requests", help="comma-separated (default: %(default)s)")
    options.add_argument("--ways", default="native,as-they-are,chosen",
                         help="of requests, comma-separated: " + ", ".join(WAYS) + " (default: %(default)s)")
    options.add_argument("--seconds", type=float, default=1.5, help="of requests per kernel and way (default: %(default)s)")
    options.add_argument("--mean-us", type=float, default=1500, help="between two requests (default: %(default)s)")
    options.add_argument("--tallyd", default="", help="more words for every tallyd, such as '--policy tally'")
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
        packages = set() if options.smoke else {name for name in PYTHON_PACKAGES if importlib.util.find_spec(name)}
        names = options.kernels.split(",") if options.kernels else []
        self.programs = runs.programs(self.root, names, packages, 1000 if options.smoke else 1)
        self.rows = {program.name: {"kernel": program.name, "forms": {}, "requests": {}} for program in self.programs}
        self.requests_alone = {}  # latencies by way
        self.facts = machine.describe(self.root, PYTHON_PACKAGES)

    def progress(self, sentence):
        print(f"[{time.monotonic() - self.began:5.0f} s] {sentence}", file=sys.stderr, flush=True)

    def is_over(self, share=1.0):
        return time.monotonic() - self.began > self.options.minutes * 60 * share

    def daemon(self, stack, name, *arguments, form=None):
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        more = shlex.split(self.options.tallyd)
        # On a GPU the default policy runs kernels as they are.
        policy = [] if "--policy" in more else ["--policy", "look-ahead"]
        words = ["--cache-directory", cache, *policy, *arguments, *more]
        return stack.enter_context(ways.daemon(self.root, self.driver, arguments=words,
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
        result = runs.alone(way, program, launches, settle_s=0 if self.options.smoke else 0.2)
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
        smoke = self.options.smoke
        seconds = 0.2 if smoke else self.options.seconds
        with contextlib.ExitStack() as stack:
            found = []
            for name in self.options.ways.split(","):
                if WAYS[name] is None and smoke:
                    continue
                way = self.native if WAYS[name] is None else self.daemon(
                    stack, name, "--turnaround-us", f"{self.options.threshold_us:g}", *WAYS[name])
                requests = stack.enter_context(contextlib.closing(runs.Requests(way, self.root, self.options.mean_us)))
                found.append((name, way, requests))
            self.requests_alone = {name: requests.measure(seconds) for name, _, requests in found}
            reference = self.native or found[0][1]
            for program in self.for_requests():
                row = self.rows[program.name]
                us = self.us_per_launch(reference, program)
                if us is None:
                    continue
                row["us"] = us
                # Where others use the processors, requests take longer, and what was measured alone may have.
                launches = self.launches(us, seconds * (10 if smoke else OUTLASTS))
                for name, way, requests in found:
                    if self.is_over():
                        return
                    self.progress(f"requests: {program.name}, {name}")
                    # Where forms are tried they have to be: about thirty launches, and what the compiler takes.
                    settle = 0 if smoke or name in ("native", "as-they-are") else max(1.0, 60 * us / 1e6)
                    self.attempt(row["requests"], name, lambda: vars(runs.beside(
                        way, requests, program, launches, seconds, settle)))

    def for_requests(self):
        """The programs in the order of REQUEST_KERNELS; all that were named."""
        order = {name: place for place, name in enumerate(REQUEST_KERNELS)}
        chosen = [program for program in self.programs if self.options.kernels or program.name in order]
        return sorted(chosen, key=lambda program: order.get(program.name, len(order)))

    def write(self):
        """After every part: a run that is cut short leaves what it has."""
        text = page.markdown(self.facts, self.rows.values(), self.requests_alone, self.options)
        output.write(text, {"machine": self.facts, "alone": self.requests_alone, "rows": list(self.rows.values())}, self.options)
        return text


def main():
    options = read_options()
    for way in options.ways.split(","):
        if way not in WAYS:
            raise ways.Failed(f"no way is called '{way}': {', '.join(WAYS)}")
    bench = Bench(options)
    parts = {"forms": bench.measure_forms, "requests": bench.measure_requests}
    for part in options.parts.split(","):
        if part not in parts:
            raise ways.Failed(f"no part is called '{part}': forms, requests")
        try:
            parts[part]()
        finally:
            text = bench.write()
    print(text)
    return page.problems(bench.rows.values())


if __name__ == "__main__":
    ways.run_bench(main)
