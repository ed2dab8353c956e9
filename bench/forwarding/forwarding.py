#!/usr/bin/env python3
"""What forwarding costs: programs natively and under tally-run, by turns in one run, against the budgets of README.md.

    python3 bench/forwarding/forwarding.py [--minutes 9] [--output FILE.md] [--json FILE.json] [--profile]
    python3 bench/forwarding/forwarding.py --before OTHER-BUNDLE    an earlier Tally by turns with this one

From a bundle (tools/bundle) or a build folder. Needs nothing but Python 3.10; the model parts need torch, torchvision
and transformers and are reported as not measured without them. Downloads nothing. Without a GPU only --smoke makes
sense: the driver calls on the software driver.
"""
import argparse
import contextlib
import importlib.util
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
# pylint: disable=wrong-import-position
import output
import parts
import report
import ways
# pylint: enable=wrong-import-position

# Name, title, share of the time.
PLAN = [("calls", "Driver calls", 0.17), ("copies", "Copies", 0.13), ("models", "Models", 0.45),
        ("start", "Process start", 0.17), ("idle", "Idle", 0.04)]
MODEL_PACKAGES = {"torch", "torchvision", "transformers"}


def read_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=9, help="about how long it may take (default: %(default)s)")
    options.add_argument("--output", help="Markdown file; it also goes to stdout")
    options.add_argument("--json", dest="json_path", help="JSON file")
    options.add_argument("--parts", default=",".join(name for name, _, _ in PLAN), help="comma-separated (default: all)")
    options.add_argument("--priority", choices=["high", "best-effort"], default="", help="class of the programs")
    options.add_argument("--driver", choices=["auto", "cuda", "sim"], default="auto")
    options.add_argument("--profile", action="store_true", help="run driver calls that missed their budget again and look")
    options.add_argument("--before", metavar="BUNDLE", help="folder of an earlier Tally, measured by turns with this one: "
                         "calls, copies and models")
    options.add_argument("--smoke", action="store_true", help="does everything run? C++ parts, software driver, no numbers")
    chosen = options.parse_args()
    if chosen.smoke:
        chosen.driver = "sim"
    unknown = set(chosen.parts.split(",")) - {name for name, _, _ in PLAN}
    if unknown:
        options.error(f"no part is called {', '.join(sorted(unknown))}")
    return chosen


def models(bench, seconds):
    missing = sorted(package for package in MODEL_PACKAGES if importlib.util.find_spec(package) is None)
    rows = []
    for part, name, samples in [] if bench.smoke else parts.MODELS:
        if missing:
            rows.append(parts.Row(name, "ms", note="not measured: no " + ", ".join(missing)))
            continue
        rows += attempt(parts.Row(name, "ms"), parts.measure_model, bench, seconds / len(parts.MODELS), part, name, samples)
    return rows


def start(bench, seconds):
    rows = attempt(parts.Row("process start, CUDA program", "s"), parts.measure_start, bench, seconds * 0.2,
                   "CUDA program", [bench.program("driver_calls"), "--attach"])
    if not bench.smoke and importlib.util.find_spec("torch") is not None:
        rows += attempt(parts.Row("process start, import torch and a matmul", "s"), parts.measure_start, bench,
                        seconds * 0.8, "import torch and a matmul",
                        [sys.executable, os.path.join(HERE, "first_result.py")])
    return rows


def attempt(row, measure, *arguments):
    """The rows of `measure`, or `row` with the reason."""
    try:
        return measure(*arguments)
    except (ways.Failed, OSError) as failure:
        row.note = f"not measured: {failure}"
        print(f"    failed: {failure}", file=sys.stderr, flush=True)
        return [row]


def measure(bench, name, seconds, options):
    if name == "calls":
        return attempt(parts.Row("driver calls", "us"), parts.measure_driver_calls, bench, seconds, name,
                       ["--skip", "copy "], options.profile)
    if name == "copies":
        return attempt(parts.Row("copies", "GB/s"), parts.measure_driver_calls, bench, seconds, name, ["--only", "copy "],
                       options.profile)
    if name == "models":
        return models(bench, seconds)
    if name == "start":
        return start(bench, seconds)
    return attempt(parts.Row("idle CPU of tallyd and executor, 10 attached idle clients", "% of a core"),
                   parts.measure_idle, bench, 2 if bench.smoke else max(3, seconds - 4))


def collect_profiles(bench, sections):
    profiles = {}
    for _, rows in sections:
        for item in rows:
            if item.verdict == "missed" and item.row.program and len(profiles) < 8:
                bench.progress(f"profile: {item.row.name}")
                try:
                    profiles[item.row.name] = parts.profile(bench, item.row)
                except ways.Failed as failure:
                    item.row.note = f"no profile: {failure}"
    return profiles


def write(options, machine, sections, profiles):
    """After every part: a run that is cut short leaves what it has."""
    page = report.markdown(machine, sections, profiles, options.smoke)
    output.write(page, report.as_json(machine, sections, profiles, options.smoke), options)
    return page


def main():
    options = read_options()
    began = time.monotonic()

    def progress(sentence):
        print(f"[{time.monotonic() - began:5.0f} s] {sentence}", file=sys.stderr, flush=True)

    root = ways.find_root()
    native = ways.Native() if options.driver != "sim" and ways.has_gpu() else None
    chosen = [entry for entry in PLAN if entry[0] in options.parts.split(",")]
    share = sum(entry[2] for entry in chosen) + 0.04  # the rest is starting and stopping
    with contextlib.ExitStack() as daemons:
        tally = daemons.enter_context(ways.daemon(root, options.driver, options.priority))
        before = daemons.enter_context(ways.daemon(options.before, options.driver, options.priority, name="before")) \
            if options.before else None
        bench = parts.Bench(root, native, tally, options.driver, options.priority, options.smoke, progress, before)
        machine = report.describe_machine(root, tally.readiness, options.priority, options.before)
        sections = []
        for name, title, part_share in chosen:
            progress(title)
            rows = measure(bench, name, options.minutes * 60 * part_share / share, options)
            sections.append((title, [report.judge(row) for row in rows]))
            write(options, machine, sections, {})
        profiles = collect_profiles(bench, sections) if options.profile else {}
    print(write(options, machine, sections, profiles))
    failed = [item.row.name for _, rows in sections for item in rows if not item.row.tally]
    if options.smoke and options.before:
        failed += [item.row.name for title, rows in sections if title in ("Driver calls", "Copies") for item in rows
                   if not item.row.before]
    return ["not measured: " + ", ".join(failed)] if options.smoke and failed else []


if __name__ == "__main__":
    ways.run_bench(main)
