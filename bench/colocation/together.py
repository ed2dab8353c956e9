#!/usr/bin/env python3
"""Two best-effort programs on one GPU: how much both get done together, in several modes of sharing.

    python3 bench/colocation/together.py --json together.json [--output FILE.md] [--pairs A:B,...]

A program's share is its steps a second beside the other one over those natively alone. Shares of two that take turns
add up to 1; of two that leave one another what they do not need, to more. All programs of a mode stand up once; the
pairs come in rounds. Programs and modes: README.md. Without a GPU only --smoke makes sense.
"""
import argparse
import contextlib
import itertools
import json
import os
import statistics
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
import ways
# pylint: enable=wrong-import-position

DEFAULT_PAIRS = "gpt2-medium:pictures,whisper:pictures,resnet50:pictures,bert:resnet50,whisper:pointnet,gpt2-medium:resnet50"
DEFAULT_MODES = "time-slicing,mps,tally,tally:fair"
LEAD_S = 0.5  # of both, before anything counts


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = command_line.option_adder(parser)
    option("--pairs", "of trainings of catalogue.py", DEFAULT_PAIRS)
    option("--modes", "see modes.py; natively alone always comes first", DEFAULT_MODES)
    option("--repetitions", "of each cell", 3, type=int)
    option("--seconds", "of a cell", 3, type=float)
    option("--start-limit", "seconds in which all workers must be ready", 240, type=float)
    option("--json", "results", dest="json_path", required=True)
    option("--output", "Markdown file; it also goes to stdout")
    option("--smoke", "does everything run? Stand-in programs, software driver, no numbers", action="store_true")
    chosen = parser.parse_args(words)
    pairs = f"{catalogue.STAND_IN}:{catalogue.STAND_IN}" if chosen.smoke else chosen.pairs
    chosen.pairs = [tuple(pair.split(":")) for pair in pairs.split(",")]
    for pair in chosen.pairs:
        if len(pair) != 2 or not all(map(catalogue.is_training, pair)):
            parser.error(f"no pair of two trainings: {':'.join(pair)}")
    chosen.modes = [mode for mode in dict.fromkeys(chosen.modes.split(",")) if mode != "alone"]
    return chosen


def keys_of(pair):
    """(name, index): two of the same program are two processes."""
    first, second = pair
    return (first, 0), (second, int(first == second))


@contextlib.contextmanager
def workers(options, root, place_name):
    """All programs, by key, in one place."""
    with contextlib.ExitStack() as stack:
        turns = stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-turns-"))
        place = stack.enter_context(modes.enter(root, place_name, options.smoke))
        found = {}
        for key in dict.fromkeys(itertools.chain(*map(keys_of, options.pairs))):
            found[key] = stage.Worker(place, "training", *key, os.path.join(turns, "0"))
            stack.callback(found[key].child.end, 8)
        stage.make_all_ready(found.values(), options.start_limit)
        yield found


def rates(who, seconds):
    """Steps a second of these workers, all at once."""
    started = time.monotonic()
    for worker in who:
        worker.child.say(json.dumps({"train": True}))
    time.sleep(LEAD_S + seconds)
    for worker in who:
        worker.child.say(json.dumps({"stop": True}))
    return [measures.rate(started, worker.answer(stage.LIMIT_S)["completions"], started + LEAD_S, seconds) for worker in who]


def measure_place(options, root, place_name, results):
    with workers(options, root, place_name) as found:
        for (name, index), worker in found.items():
            results["digests"].setdefault(name, {})[f"{place_name} {index}"] = worker.facts["digest"]
        is_native = place_name == "native"
        for repetition in range(options.repetitions):
            for key, worker in found.items():
                results["cells"].append({"mode": "alone" if is_native else f"{place_name}, alone", "programs": [key[0]],
                                         "repetition": repetition, "rates": rates([worker], options.seconds)})
            if is_native and "time-slicing" not in options.modes:
                continue
            for pair in options.pairs:
                mode = "time-slicing" if is_native else place_name
                print(f"{mode}: {' and '.join(pair)}, {repetition + 1}", file=sys.stderr, flush=True)
                results["cells"].append({"mode": mode, "programs": list(pair), "repetition": repetition,
                                         "rates": rates([found[key] for key in keys_of(pair)], options.seconds)})


def rows(results):
    """For each pair and mode: shares of natively alone, by repetition."""
    solo = {}
    for cell in results["cells"]:
        if cell["mode"] == "alone":
            solo.setdefault(cell["programs"][0], []).append(cell["rates"][0])
    solo = {name: statistics.median(of) for name, of in solo.items()}
    found = {}
    for cell in results["cells"]:
        if len(cell["programs"]) == 2:
            shares = [rate / solo[name] if solo[name] else float("nan") for rate, name in zip(cell["rates"], cell["programs"])]
            found.setdefault((*cell["programs"], cell["mode"]), []).append(shares)
    return found


def alone_in_modes(results):
    """Of natively alone, the median of each program and mode."""
    native = {}
    for cell in results["cells"]:
        if len(cell["programs"]) == 1:
            native.setdefault((cell["mode"], cell["programs"][0]), []).append(cell["rates"][0])
    medians = {key: statistics.median(of) for key, of in native.items()}
    return {(mode, name): rate / medians["alone", name] for (mode, name), rate in medians.items() if mode != "alone" and medians["alone", name]}


def markdown(results):
    text = ["# Two best-effort programs on one GPU", ""]
    text += ["No numbers: the software GPU, and programs of one tiny kernel.", ""] if results["smoke"] else []
    text += ["| programs | mode | first, of natively alone | second | **both together**, median (range) |", "|---|---|---:|---:|---|"]
    for (first, second, mode), shares in rows(results).items():
        a, b = (statistics.median(share[i] for share in shares) for i in (0, 1))
        sums = sorted(map(sum, shares))
        text.append(f"| {first}, {second} | {mode} | {a:.2f} | {b:.2f} | **{statistics.median(sums):.2f}** ({sums[0]:.2f} to {sums[-1]:.2f}) |")
    text += ["", "| alone in the mode, of natively alone | |", "|---|---|"]
    by_mode = {}
    for (mode, name), share in alone_in_modes(results).items():
        by_mode.setdefault(mode, []).append(f"{name} {share:.2f}")
    text += [f"| {mode} | {', '.join(names)} |" for mode, names in by_mode.items()]
    text += ["", *(f"* not measured: {sentence}" for sentence in results["failures"])]
    return "\n".join(text).rstrip() + "\n"


def problems(results):
    return list(results["failures"]) + [f"{name}: results differ: {digests}" for name, digests in results["digests"].items()
                                        if len(set(digests.values())) > 1]


def main():
    options = read_options()
    root = ways.find_root()
    modes.check(options.modes)
    results = {"machine": machine.describe(root, () if options.smoke else ("torch", "transformers")), "smoke": options.smoke,
               "seconds": options.seconds, "digests": {}, "cells": [], "failures": []}
    stage.measure_places(options, results, lambda place: measure_place(options, root, place, results), markdown)
    return problems(results)


if __name__ == "__main__":
    ways.run_bench(main)
