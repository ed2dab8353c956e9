#!/usr/bin/env python3
"""A training on several GPUs in one process, and a service on each of them, in several modes of sharing.

    python3 bench/colocation/several_gpus.py --gpus 2 --json several_gpus.json [--output FILE.md]

Each GPU's service has a trace of its own (trace.py); the training is beside all of them at once, and alone. A mode's
cells come in rounds. Workers stand up once per mode: a process that hangs makes its cell fail by name, and the rest
goes on. Programs, modes and what a latency is: README.md. Without GPUs only --smoke makes sense.
"""
import argparse
import contextlib
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import catalogue
import command_line
import machine
import measures
import modes
import stage
import trace
import ways
# pylint: enable=wrong-import-position

DEFAULT_MODES = "time-slicing,driver-slices,tally,tally:look-ahead+suspended"


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = command_line.option_adder(parser)
    option("--gpus", "how many of this machine's", 2, type=int)
    option("--pair", "SERVICE:TRAINING of catalogue.py", "bert-graph:bert")
    option("--modes", "see modes.py; natively alone always comes first", DEFAULT_MODES)
    option("--load", "per cent of a service's capacity", 50, type=float)
    option("--repetitions", "of each cell", 3, type=int)
    option("--seconds", "of requests in a cell", 5, type=float)
    option("--start-limit", "seconds in which all workers must be ready", 240, type=float)
    option("--json", "results", dest="json_path", required=True)
    option("--output", "Markdown file; it also goes to stdout")
    option("--smoke", "does everything run? Stand-in programs, software driver, no numbers", action="store_true")
    chosen = parser.parse_args(words)
    catalogue.choose_pair(chosen, parser)
    if chosen.gpus < 2 or not 0 < chosen.load < 100:
        parser.error("GPUs are at least 2, loads between 0 and 100")
    chosen.modes = [mode for mode in dict.fromkeys(chosen.modes.split(",")) if mode != "alone"]
    return chosen


class Workers:
    """A service on each GPU and a training on all of them, of one place. A context."""

    def __init__(self, options, root, place_name):
        self.options = options
        self.stack = contextlib.ExitStack()
        turns = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-turns-"))
        place = self.stack.enter_context(modes.enter(root, place_name, options.smoke))
        turn = os.path.join(turns, "0")
        self.services = [stage.Worker(place, "service", options.service, gpu, turn,
                                      {"CUDA_VISIBLE_DEVICES": str(gpu)}) for gpu in range(options.gpus)]
        self.training = stage.Worker(place, "training", options.training, 0, turn,
                                     {"TALLY_BENCH_GPUS": str(options.gpus), "NCCL_NVLS_ENABLE": "0"})

    def __enter__(self):
        try:
            stage.make_all_ready((*self.services, self.training), self.options.start_limit)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for worker in (*self.services, self.training):
            worker.child.end(8)
        self.stack.close()

    def capacities(self):
        """Requests per second of each GPU's service, one after another, back to back."""
        seconds = 0.3 if self.options.smoke else 1
        return [max(service.per_second(seconds) for _ in range(2)) for service in self.services]

    def measure(self, with_services, with_training, capacities, repetition):
        """The services' answers by GPU, and the training's steps per second."""
        options = self.options
        started = time.monotonic()
        begin = started + stage.LEAD_S + 0.2
        if with_training:
            self.training.child.say(json.dumps({"train": True}))
        answers = []
        try:
            for gpu, service in enumerate(self.services if with_services else ()):
                arrivals = trace.arrivals(options.seconds, options.load / 100, capacities[gpu], f"{gpu} {repetition}")
                service.child.say(stage.requests(arrivals, begin))
            for service in self.services if with_services else ():
                answers.append(service.answer(options.seconds + stage.LEAD_S + stage.GRACE_S + stage.LIMIT_S))
            time.sleep(max(0, begin + options.seconds - time.monotonic()))
        finally:
            if with_training:
                self.training.child.say(json.dumps({"stop": True}))
        rate = None
        if with_training:
            completions = self.training.answer(stage.LIMIT_S)["completions"]
            rate = measures.rate(started, completions, begin, options.seconds)
        return {"gpus": [{key: answer[key] for key in stage.KEPT} for answer in answers], "rate": rate}


def measure_place(options, root, place_name, results):
    """All cells of the modes of one place; `results` has its digests, capacities and records."""
    wanted = ["time-slicing"] if place_name == "native" and "time-slicing" in options.modes else []
    wanted = wanted if place_name == "native" else [place_name]
    baseline = "alone" if place_name == "native" else f"{place_name} alone"
    with Workers(options, root, place_name) as workers:
        for role, worker in (("service", workers.services[0]), ("training", workers.training)):
            results["digests"].setdefault(role, {})[place_name] = worker.facts["digest"]
        if place_name == "native":
            results["capacities"] = workers.capacities()
        for repetition in range(options.repetitions):
            for mode, with_services, with_training in ((baseline, True, False), (baseline, False, True),
                                                       *((mode, True, True) for mode in wanted)):
                cell = {"mode": mode, "services": with_services, "training": with_training, "repetition": repetition}
                print(f"{mode}, services {with_services}, training {with_training}, {repetition + 1}", file=sys.stderr,
                      flush=True)
                try:
                    cell.update(workers.measure(with_services, with_training, results["capacities"], repetition))
                except ways.Failed as failure:
                    cell["failed"] = str(failure)
                    results["cells"].append(cell)
                    raise  # who hangs is of no use any more
                results["cells"].append(cell)


def mean(numbers):
    return sum(numbers) / len(numbers) if numbers else float("nan")


def rows(results):
    """For each mode: p99 by GPU, the same over that natively alone, the training's share of its speed natively alone."""
    def of(mode, services, training):
        return [cell for cell in results["cells"]
                if (cell["mode"], cell["services"], cell["training"]) == (mode, services, training) and "failed" not in cell]

    def p99(cells, gpu):
        latencies = sorted(latency for cell in cells for latency in cell["gpus"][gpu]["latencies_ms"])
        return machine.quantile(latencies, 0.99) if latencies else float("nan")

    alone, solo = of("alone", True, False), mean([cell["rate"] for cell in of("alone", False, True)])
    found = []
    for mode in dict.fromkeys(cell["mode"] for cell in results["cells"]):
        is_baseline = mode == "alone" or mode.endswith(" alone")
        cells = of(mode, True, not is_baseline)
        rates = [cell["rate"] for cell in of(mode, not is_baseline, True)]
        by_gpu = [p99(cells, gpu) for gpu in range(results["gpus"])]
        found.append({"mode": mode, "p99_ms": by_gpu,
                      "over_alone": [p99_ms / p99(alone, gpu) for gpu, p99_ms in enumerate(by_gpu)],
                      "of_solo": mean(rates) / solo if solo else float("nan"),
                      "wrong": sum(gpu["wrong"] for cell in cells for gpu in cell["gpus"]),
                      "unserved": sum(gpu["unserved"] for cell in cells for gpu in cell["gpus"])})
    return found


def markdown(results):
    number = lambda value, digits=2: "-" if value != value else f"{value:.{digits}f}"
    text = [f"# {results['service']} on each of {results['gpus']} GPUs, {results['training']} on all of them", "",
            "Modes that end with \"alone\": services without the training, the training without services.", ""]
    text += ["No numbers: the software GPU, and programs of one tiny kernel.", ""] if results["smoke"] else []
    text += ["| mode | p99 of each service, ms | over alone | training of solo | wrong | not served |",
             "|---|---|---|---:|---:|---:|"]
    for row in rows(results):
        p99, ratios = ", ".join(number(each, 3) for each in row["p99_ms"]), ", ".join(map(number, row["over_alone"]))
        text.append(f"| {row['mode']} | {p99} | {ratios} | {number(row['of_solo'])} | {row['wrong']} | "
                    f"{row['unserved']} |")
    text += ["", *(f"* not measured: {sentence}" for sentence in results["failures"])]
    return "\n".join(text).rstrip() + "\n"


def problems(results):
    found = list(results["failures"])
    found += [f"{row['mode']}: {row['wrong']} wrong outputs" for row in rows(results) if row["wrong"]]
    for role, digests in results["digests"].items():
        if len(set(digests.values())) > 1:
            found.append(f"the {role}'s output differs: {digests}")
    return found


def main():
    options = read_options()
    root = ways.find_root()
    modes.check(options.modes)
    if options.smoke:
        os.environ["TALLY_SIM_DEVICES"] = str(options.gpus)
    results = {"machine": machine.describe(root, () if options.smoke else ("torch", "transformers")),
               "smoke": options.smoke, "gpus": options.gpus, "service": options.service, "training": options.training,
               "load": options.load, "seconds": options.seconds, "capacities": [], "digests": {}, "cells": [],
               "failures": []}
    stage.measure_places(options, results, lambda place: measure_place(options, root, place, results), markdown)
    return problems(results)


if __name__ == "__main__":
    ways.run_bench(main)
