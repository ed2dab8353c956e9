#!/usr/bin/env python3
"""What sharing a GPU does to an inference service and to the training beside it, in every mode of sharing.

    python3 bench/colocation/colocation.py --json colocation.json [--output FILE.md] [--csv FILE.csv] [--minutes 20]

Requests come by bursty traces at a given load; latency is from arrival to completion. Modes take turns on the same
traces, with runs alone in between. From a bundle (tools/bundle) or a build folder, on a machine with a GPU, torch, torchvision and
transformers; downloads nothing. It goes on where the JSON file stops; Ctrl-C and SIGTERM leave what there is. Without a
GPU only --smoke makes sense.
"""
import argparse
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import catalogue
import machine
import measures
import modes
import page
import plan
import stage
import trace
import ways
# pylint: enable=wrong-import-position

DEFAULT_MODES = ("alone,time-slicing,tally,tally:look-ahead+suspended,tally:look-ahead+transforms,mps-priority,mps,"
                 "tally:tally-paper+transforms,tally:kernel-granular")
START_S = 35  # about what starting the workers of a group takes, before one was
DEFAULT_PAIRS = "bert-graph:gpt2-medium,resnet50-eager:bert"


def pairs_of(text, smoke):
    if smoke and text == DEFAULT_PAIRS:
        return [(catalogue.STAND_IN, catalogue.STAND_IN)]
    return catalogue.all_pairs() if text == "all" else [tuple(pair.partition(":")[::2]) for pair in text.split(",")]


def read_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=20, help="about how long it may take (default: %(default)s)")
    options.add_argument("--pairs", default=DEFAULT_PAIRS, help="SERVICE:TRAINING,... or 'all', see catalogue.py; SERVICE: alone in each mode (default: %(default)s)")
    options.add_argument("--modes", default=DEFAULT_MODES, help="see modes.py (default: %(default)s)")
    options.add_argument("--loads", default="50", help="per cent of a service's capacity, the most important first (default: %(default)s)")
    options.add_argument("--best-effort", default="1", help="numbers of trainings, the most important first (default: %(default)s)")
    options.add_argument("--load-pairs", help="of which pairs other loads than the first are measured (default: the first of --pairs)")
    options.add_argument("--tenant-pairs", help="likewise, of other numbers of trainings; small trainings fit more often")
    options.add_argument("--sweep-modes", default="", help="in which modes, of --modes (default: all)")
    options.add_argument("--idle-services", nargs="?", default="", const="also", choices=["also", "only"],
                         help="measure the trainings beside services without requests, too, or only so")
    options.add_argument("--trace", default="bursty", choices=sorted(trace.KINDS),
                         help="how requests come, see trace.py (default: %(default)s)")
    options.add_argument("--repetitions", type=int, default=5, help="at most (default: %(default)s)")
    options.add_argument("--seconds", type=float, default=6, help="of requests in a cell (default: %(default)s)")
    options.add_argument("--start-limit", type=float, default=240, help="seconds in which all workers must be ready (default: %(default)s)")
    options.add_argument("--json", dest="json_path", required=True, help="results; also where to go on")
    options.add_argument("--output", help="Markdown file; it also goes to stdout")
    options.add_argument("--csv", dest="csv_path", help="a line for each pair and mode")
    options.add_argument("--smoke", action="store_true", help="does everything run? Stand-in programs, software driver, no numbers")
    chosen = options.parse_args()
    chosen.pairs = pairs_of(chosen.pairs, chosen.smoke)
    chosen.load_pairs = pairs_of(chosen.load_pairs, chosen.smoke) if chosen.load_pairs else chosen.pairs[:1]
    chosen.tenant_pairs = pairs_of(chosen.tenant_pairs, chosen.smoke) if chosen.tenant_pairs else chosen.pairs[:1]
    for pair in (*chosen.pairs, *chosen.load_pairs, *chosen.tenant_pairs):
        if not catalogue.is_service(pair[0]) or (pair[1] and not catalogue.is_training(pair[1])):
            options.error(f"no pair of a service and a training: {':'.join(pair)}")
    chosen.modes = list(dict.fromkeys(["alone", *chosen.modes.split(",")]))
    chosen.sweep_modes = [mode for mode in chosen.sweep_modes.split(",") if mode]
    for mode in chosen.sweep_modes:
        if mode not in chosen.modes:
            options.error(f"--sweep-modes: {mode} is not one of --modes")
    chosen.loads = [float(load) / 100 for load in chosen.loads.split(",")]
    chosen.best_effort = [int(count) for count in chosen.best_effort.split(",")]
    if not all(0 < load < 1 for load in chosen.loads) or not all(count > 0 for count in chosen.best_effort):
        options.error("loads are between 0 and 100, numbers of trainings at least 1")
    return chosen


def free_gib():
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"], stdout=subprocess.PIPE,
                              text=True, timeout=60, check=True).stdout
        return float(said.split()[0]) / 1024
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise ways.Failed(f"nvidia-smi does not say how much memory the GPU has: {error}") from error


class Bench:
    def __init__(self, options):
        self.options = options
        self.root = ways.find_root()
        modes.check(options.modes)
        self.began = time.monotonic()
        self.results = {"machine": machine.describe(self.root, () if options.smoke else ("torch", "torchvision", "transformers")),
                        "command": shlex.join(["python3", "bench/colocation/colocation.py", *sys.argv[1:]]),
                        "smoke": options.smoke, "seconds": options.seconds, "trace": options.trace, "loads": options.loads,
                        "capacity": {}, "digests": {}, "workers": {}, "tallyds": {}, "cells": []}
        if os.path.exists(options.json_path):
            with open(options.json_path, encoding="utf-8") as text:
                before = json.load(text)
            if before["machine"]["GPU"] != self.results["machine"]["GPU"] or any(
                    before[key] != self.results[key] for key in ("smoke", "seconds", "trace")):
                raise ways.Failed(f"{options.json_path} is of another machine or of other --seconds or --trace: give another file")
            for key in ("capacity", "digests", "workers", "tallyds"):
                self.results[key] = before[key]
            # What failed is tried again.
            self.results["cells"] = [record for record in before["cells"] if record["status"] == "done"]
        self.finished = {record["key"] for record in self.results["cells"]}

    def progress(self, sentence):
        print(f"[{time.monotonic() - self.began:5.0f} s] {sentence}", file=sys.stderr, flush=True)

    def measure(self):
        options = self.options
        whole = plan.Plan(tuple(options.modes), tuple(options.pairs), tuple(options.loads), tuple(options.best_effort), options.repetitions,
                          tuple(options.load_pairs), tuple(options.tenant_pairs), tuple(options.sweep_modes), options.idle_services)
        whole = self._without_missing(whole)
        lefts = [(group, [cell for cell in whole.cells(group) if cell.key() not in self.finished])
                 for group in whole.groups(1e9 if options.smoke else free_gib())]
        lefts = [(group, left) for group, left in lefts if left]
        end = self.began + options.minutes * 60
        start_s = START_S
        for index, (group, left) in enumerate(lefts):
            # Each group has time by its number of cells; what it does not need the next ones have.
            now = time.monotonic()
            rest = lefts[index:]
            share = len(left) / sum(len(cells) for _, cells in rest)
            deadline = min(end, now + start_s + max(0, end - now - start_s * len(rest)) * share)
            if now + start_s + options.seconds > end:
                self.progress(f"no time is left for {', '.join(group)}")
                continue
            start_s = max(START_S / 4, self._measure_group(group, left, deadline))

    def _without_missing(self, whole):
        """Modes that are not to be had take no time: their cells have failed."""
        reasons = {mode: modes.missing(self.root, mode, self.options.smoke) for mode in whole.modes}
        for mode in filter(reasons.get, reasons):
            self.progress(f"{mode}: {reasons[mode]}")
            self.results["cells"] += [{"key": cell.key(), **dataclasses.asdict(cell), "status": "failed", "reason": reasons[mode]}
                                      for cell in whole.cells([mode]) if cell.mode == mode]
        return dataclasses.replace(whole, modes=tuple(mode for mode in whole.modes if not reasons[mode]),
                                   sweep_modes=tuple(mode for mode in whole.sweep_modes if not reasons[mode]) or whole.sweep_modes)

    def _measure_group(self, group, left, deadline):
        """Returns for how long it started its workers."""
        self.progress(f"starting {', '.join(group)}: {len(left)} cells")
        began = time.monotonic()
        with stage.Stage(self.root, plan.needs(left), self.options.smoke, self.progress, self.options.start_limit) as players:
            for key, digest in players.digests().items():
                known = self.results["digests"].setdefault(key, [])
                known.extend([digest] if digest not in known else [])
            self.results["workers"].update(players.facts())
            for service in dict.fromkeys(cell.service for cell in left if cell.service):
                if service not in self.results["capacity"]:
                    try:
                        self.results["capacity"][service] = players.capacity(service, 0.3 if self.options.smoke else 1)
                    except ways.Failed as failure:
                        self.progress(f"failed: {failure}")
            self.write_json()
            started_s = time.monotonic() - began
            left_over = "" if self.options.smoke else f", {free_gib():.0f} GiB of the GPU are left"
            self.progress(f"started within {started_s:.0f} s{left_over}")
            try:
                for cell in left:
                    if time.monotonic() > deadline - self.options.seconds:
                        self.progress(f"the time of {', '.join(group)} is over")
                        break
                    self._measure_cell(players, cell)
            finally:
                self.results["tallyds"].update(players.daemons())
        return started_s

    def _measure_cell(self, players, cell):
        self.progress(cell.sentence())
        record = {"key": cell.key(), **dataclasses.asdict(cell), "status": "done"}
        try:
            if cell.service and cell.service not in self.results["capacity"]:
                raise ways.Failed(f"the capacity of {cell.service} alone is not known")
            record.update(players.measure(cell, self.options.seconds, self.results["capacity"].get(cell.service), self.options.trace))
            if cell.service:
                ordered = record["latencies_ms"]
                self.progress(f"    p50 {machine.quantile(ordered, 0.5):.3f}, p99 {machine.quantile(ordered, 0.99):.3f} ms; "
                              f"steps/s {' '.join(f'{rate:.2f}' for rate in record['rates']) or '-'}"
                              + (f"; {record['wrong']} WRONG" if record["wrong"] else ""))
        except ways.Failed as failure:
            record.update({"status": "failed", "reason": str(failure), "state": getattr(failure, "state", None)})
            self.progress(f"    failed: {failure}")
        self.results["cells"].append(record)
        self.write_json()

    def write_json(self):
        """After every cell, as a whole or not at all."""
        with open(self.options.json_path + ".part", "w", encoding="utf-8") as text:
            text.write(json.dumps(self.results))  # json.dump to a file is several times slower
        os.replace(self.options.json_path + ".part", self.options.json_path)

    def write(self):
        self.write_json()
        rows = measures.Results(self.results["cells"]).rows()
        text = page.markdown(self.results, rows)
        if self.options.output:
            with open(self.options.output, "w", encoding="utf-8") as file:
                file.write(text)
        if self.options.csv_path:
            page.write_csv(rows, self.options.csv_path)
        return text


def on_signal(number, frame):  # pylint: disable=unused-argument
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    options = read_options()
    bench = Bench(options)
    signal.signal(signal.SIGTERM, on_signal)
    was_cut_short = False
    try:
        bench.measure()
    except KeyboardInterrupt:
        was_cut_short = True
    finally:
        text = bench.write()
    print(text)
    wrong = page.problems(bench.results)
    if was_cut_short:
        wrong.append("cut short; the same command goes on")
    if options.smoke:
        wrong += page.failures(bench.results)
    return wrong


if __name__ == "__main__":
    ways.run_bench(main)
