#!/usr/bin/env python3
"""Many small kernels in one stream: rigidsim's plans in each of its modes, natively and under tally-run, in one run.

    python3 bench/window/rigidsim.py [--seconds 2] [--output FILE.md] [--json FILE.json]

From a bundle (tools/bundle) or a build folder; needs nothing but Python 3.10. A cell is a plan, a number of
environments, a way and a mode; it takes about --seconds, so that 10 plans and sizes with 5 cells each take two minutes
by default. All cells of a plan and size must end with the same bits. Without a GPU only --smoke makes sense.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import bars
import machine
import output
import ways
from machine import quantile
# pylint: enable=wrong-import-position

PLANS = ["ant", "grasp", "humanoid", "cheetah", "walker2d"]
NATIVE_MODES = ["serial", "graph", "graph-per-step", "acs-sw"]


@dataclasses.dataclass
class Cell:
    """One program's run; `samples` are microseconds per step of its repetitions."""
    way: str
    mode: str
    samples: list = dataclasses.field(default_factory=list)
    said: dict = dataclasses.field(default_factory=dict)  # the program's JSON
    failure: str = ""
    window: dict = dataclasses.field(default_factory=dict)  # of tallyctl

    @property
    def median(self):
        return quantile(self.samples, 0.5) if self.samples else None


class Windowed:
    """Programs of a tallyd with a window; what tallyctl last said of the window of each, and of its shapes."""

    def __init__(self, tally, name="window", mode="on"):
        self.tally = tally
        self.name = name
        self.mode = mode
        self.said = {}

    def command(self, words, priority=""):
        return self.tally.command([f"--window={self.mode}", *words], priority)

    @contextlib.contextmanager
    def watched(self):
        self.said = {}
        over = threading.Event()

        def watch():
            while not over.wait(0.1):
                with contextlib.suppress(ways.Failed, ValueError):
                    self.said = next(iter(self.tally.ctl("window")), self.said)
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@dataclasses.dataclass
class Group:
    plan: str
    environments: int
    cells: list = dataclasses.field(default_factory=list)

    def facts(self):
        """What does not depend on the mode."""
        return next((cell.said for cell in self.cells if cell.said), {})

    def baseline(self):
        """Medians are compared with the native serial stream's, where that was measured."""
        measured = [cell for cell in self.cells if cell.mode == "serial" and cell.median]
        return next((cell for cell in measured if cell.way == "native"), measured[0] if measured else None)

    def problems(self):
        name = f"{self.plan}, {self.environments} environments"
        wrong = [f"{name}, {cell.way} {cell.mode}: {cell.failure}" for cell in self.cells if cell.failure]
        checksums = {cell.said["checksum"] for cell in self.cells if cell.said}
        return wrong + ([f"{name}: DIFFERENT BITS: {', '.join(sorted(checksums))}"] if len(checksums) > 1 else [])


def read_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=2, help="per cell (default: %(default)s)")
    options.add_argument("--plans", default=",".join(PLANS), help="comma-separated (default: all)")
    options.add_argument("--environments", default="1024,4096", help="comma-separated (default: %(default)s)")
    options.add_argument("--steps", type=int, default=100, help="of an episode (default: %(default)s)")
    options.add_argument("--modes", default=",".join(NATIVE_MODES), help="natively, comma-separated (default: all)")
    options.add_argument("--tally-modes", default="serial", help="under tally-run (default: %(default)s)")
    options.add_argument("--window-modes", default="serial", help="under tally-run --window (default: %(default)s)")
    options.add_argument("--window-sizes", default="", help="--window-modes also with windows of so many launches, such as '16,32'")
    options.add_argument("--shadow-modes", default="", help="under tally-run --window=shadow (default: none)")
    options.add_argument("--tally-run", default="", help="more words for tally-run, such as '--priority high'")
    options.add_argument("--program", default="", help="more words for rigidsim, such as '--window 16'")
    options.add_argument("--output", help="Markdown file; it also goes to stdout")
    options.add_argument("--json", dest="json_path", help="JSON file")
    options.add_argument("--plot", help="SVG file: how many times as fast as the native serial stream each cell is; needs matplotlib")
    options.add_argument("--from-json", help="results of an earlier run, to be drawn; nothing is measured")
    options.add_argument("--smoke", action="store_true", help="does everything run? Software driver, no numbers")
    chosen = options.parse_args()
    if chosen.smoke:
        chosen.environments, chosen.steps, chosen.tally_modes = "32", 12, chosen.modes
    if chosen.from_json and not chosen.plot:
        options.error("--from-json needs --plot")
    unknown = set(chosen.plans.split(",")) - set(PLANS)
    if unknown:
        options.error(f"no plan is called {', '.join(sorted(unknown))}")
    return chosen


def measure(way, words, mode, options):
    """A program of its own per cell: modes with several streams leave a context in which kernels start later."""
    cell = Cell(way.name, mode)
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as folder:
        path = os.path.join(folder, "rigidsim.json")
        limits = ["--repetitions", "1"] if options.smoke else ["--repetitions", "1000", "--seconds", str(options.seconds)]
        try:
            with way.watched() if isinstance(way, Windowed) else contextlib.nullcontext():
                ways.run(way, words + ["--mode", mode, "--json", path] + limits, 120 + 10 * options.seconds)
            cell.window = way.said if isinstance(way, Windowed) else {}
            with open(path, encoding="utf-8") as text:
                cell.said = json.load(text)
            cell.samples = cell.said["modes"].pop(mode)
        except (ways.Failed, OSError, ValueError, KeyError) as failure:
            cell.failure = str(failure)
    return cell


def _time(cell, base):
    if cell.failure or not cell.samples:
        return "failed"
    spread = f"{cell.median:.4g} ({quantile(cell.samples, 0.1):.4g} to {quantile(cell.samples, 0.9):.4g})"
    return spread if cell is base or base is None else f"{spread}, {base.median / cell.median:.2f}x"


def markdown(facts, groups, smoke):
    lines = ["# rigidsim: many small kernels in one stream", ""]
    if smoke:
        lines += ["**Smoke run: it shows that the bench runs; its numbers mean nothing.**", ""]
    lines += [f"* {key}: {value}" for key, value in facts.items()]
    wrong = [problem for group in groups for problem in group.problems()]
    lines += ["", "Results: " + ("; ".join(wrong) if wrong else "of each plan and size the same bits in all cells."), "",
              "Microseconds per step, median (p10 to p90) of repetitions; behind it how many times as fast as the native serial "
              "stream of the same run. Parallelism: launches over the longest chain of a step's dependences; the most "
              "launches of one level.", ""]
    columns = list(dict.fromkeys((cell.way, cell.mode) for group in groups for cell in group.cells))
    heads = ["plan", "environments", "kernels", "lists (changes)", "parallelism (most)"] + [f"{way} {mode}" for way, mode in columns]
    lines += ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for group in groups:
        said, base = group.facts(), group.baseline()
        cells = {(cell.way, cell.mode): _time(cell, base) for cell in group.cells}
        row = [group.plan, str(group.environments)]
        row += [f"{said['kernels_per_step']:.1f}", f"{said['lists']} ({said['list_changes']})",
                f"{said['parallelism']:.2f} ({said['parallelism_max']})"] if said else ["-"] * 3
        lines.append("| " + " | ".join(row + [cells.get(column, "-") for column in columns]) + " |")
    lines += _windows(groups)
    return "\n".join(lines) + "\n"


def _windows(groups):
    """What tallyctl window said last of each program that had one."""
    rows = [(group, cell) for group in groups for cell in group.cells if cell.window]
    if not rows:
        return []
    lines = ["", "What the windows saw: launches whose memory is known (C0 to C3), held, issued in graphs; launches of a batch; "
             "parallelism of the held ones (shadow: of all), and if only read after write counted (shadow); what graphs took by the "
             "marks around them, in order and as graphs; node updates per graph; why others were barriers.", "",
             "| plan | environments | way | launches | C0 to C3 | held | in graphs | batch | parallelism (RAW only) | in order, as "
             "graphs | updates | barriers |", "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for group, cell in rows:
        said = cell.window
        launches = sum(said["classes"].values()) + sum(said["barriers"].values())
        known = sum(count for name, count in said["classes"].items() if name != "C4")
        cells = [group.plan, group.environments, f"{cell.way} {cell.mode}", launches]
        cells += [f"{100 * part / max(launches, 1):.1f} %" for part in (known, said["held"], said["in_graphs"])]
        cells += [f"{said['held'] / max(sum(said['batches'].values()), 1):.1f}"]
        work, graphs = said["work"], max(said["graphs"], 1)
        raw_only = f" ({work / said['chain_read_after_write']:.2f})" if said["chain_read_after_write"] else ""
        cells += [f"{work / max(said['chain'], 1):.2f}{raw_only}"]
        cells += [f"{said['in_order_ns'] / graphs / 1000:.0f}, {said['in_graphs_ns'] / graphs / 1000:.0f} us"]
        cells += [f"{said['node_updates'] / graphs:.1f}"]
        cells.append(", ".join(f"{name} {count}" for name, count in said["barriers"].items()) or "none")
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def as_json(facts, groups, smoke):
    return {"machine": facts, "smoke": smoke, "groups": [dataclasses.asdict(group) for group in groups]}


def plot(groups, path):
    groups = [group for group in groups if group.baseline()]
    columns = list(dict.fromkeys((cell.way, cell.mode) for group in groups for cell in group.cells))
    heights = {}
    for column in columns:
        cells = [next((cell for cell in group.cells if (cell.way, cell.mode) == column), None) for group in groups]
        heights[" ".join(column)] = [group.baseline().median / cell.median if cell and cell.median else 0
                                     for group, cell in zip(groups, cells)]
    bars.draw(path, [f"{group.plan}\n{group.environments}" for group in groups], heights, "times as fast as native serial")


def read_groups(path):
    with open(path, encoding="utf-8") as text:
        groups = json.load(text)["groups"]
    return [Group(**{**group, "cells": [Cell(**cell) for cell in group["cells"]]}) for group in groups]


def main():
    options = read_options()
    if options.from_json:
        return plot(read_groups(options.from_json), options.plot)
    root = ways.find_root()
    native = ways.Native() if not options.smoke and ways.has_gpu() else None
    groups = []
    with contextlib.ExitStack() as stack:
        tally = stack.enter_context(ways.daemon(root, "sim" if options.smoke else "auto"))
        more = options.tally_run.split()
        if more:
            plain = tally.command
            tally.command = lambda words, priority="": plain(more + list(words), priority)
        windowed = {Windowed(tally): options.window_modes, Windowed(tally, "shadow", "shadow"): options.shadow_modes}
        for size in filter(None, options.window_sizes.split(",")):
            small = stack.enter_context(ways.daemon(root, "sim" if options.smoke else "auto", env={"TALLY_WINDOW_LAUNCHES": size}))
            windowed[Windowed(small, f"window {size}")] = options.window_modes
        facts = machine.describe(root)
        facts.update({"tallyd": tally.readiness, "words for tally-run": options.tally_run or "none",
                      "words for rigidsim": options.program or "none"})
        for plan in options.plans.split(","):
            for environments in options.environments.split(","):
                group = Group(plan, int(environments))
                groups.append(group)
                words = [os.path.join(root, "bench", "rigidsim"), "--plan", plan, "--environments", environments,
                         "--steps", str(options.steps), *options.program.split()]
                runs = [(native, mode) for mode in options.modes.split(",")] if native else []
                runs += [(tally, mode) for mode in options.tally_modes.split(",")]
                runs += [(way, mode) for way, modes in windowed.items() for mode in modes.split(",") if mode]
                for way, mode in runs:
                    print(f"{plan}, {environments} environments: {way.name} {mode}", file=sys.stderr, flush=True)
                    group.cells.append(measure(way, words, mode, options))
                # After every plan: a run that is cut short leaves what it has.
                page = markdown(facts, groups, options.smoke)
                output.write(page, as_json(facts, groups, options.smoke), options)
    print(page)
    if options.plot:
        plot(groups, options.plot)
    return [problem for group in groups for problem in group.problems()]


if __name__ == "__main__":
    ways.run_bench(main)
