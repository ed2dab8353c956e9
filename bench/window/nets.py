#!/usr/bin/env python3
"""Nets and simulations by NVRTC, PyTorch, Triton, JAX, CuPy and Numba: natively, under tally-run, and with its window.

    python3 bench/window/nets.py [--seconds 1] [--output FILE.md] [--json FILE.json] [--csv FILE.csv] [--plot FILE.svg]

From a bundle (tools/bundle) or a build folder; a package that is missing leaves its programs out. A cell is a case of
nets/ and a way; all ways of a case must end with the same bits. Without a GPU only --smoke makes sense.
"""
import argparse
import dataclasses
import importlib.util
import json
import os
import re
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
# pylint: disable=wrong-import-position
import machine
import nets_page
import output
import ways
from child import Child
from nets_page import Cell, line_of
# pylint: enable=wrong-import-position

XLA, NO_COMMAND_BUFFERS = "--xla_gpu_autotune_level=0", " --xla_gpu_enable_command_buffer="
NO_PDL = " --xla_gpu_enable_pdl=false"  # launches have no attribute then
# Name, file, the packages it needs, its environment.
PROGRAMS = [
    ("NVRTC", "by_nvrtc.py", [], {}),
    ("CuPy", "by_cupy.py", ["cupy"], {}),
    ("Numba", "by_numba.py", ["numba", "numba_cuda"], {}),
    ("JAX", "by_jax.py", ["jax"], {"XLA_FLAGS": XLA + NO_COMMAND_BUFFERS}),
    ("JAX, no PDL", "by_jax.py", ["jax"], {"XLA_FLAGS": XLA + NO_COMMAND_BUFFERS + NO_PDL}),
    ("JAX, command buffers", "by_jax.py", ["jax"], {"XLA_FLAGS": XLA}),
    ("JAX, command buffers, no PDL", "by_jax.py", ["jax"], {"XLA_FLAGS": XLA + NO_PDL}),
    ("PyTorch", "by_torch.py", ["torch", "triton"], {}),
    ("cuBLAS", "by_cublas.py", ["torch", "triton"], {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}),
]
WAYS = {"native": None, "tally": ["--window=off"], "shadow": ["--window=shadow"], "window": ["--window=on"]}
TENANTS = ("NVRTC", ["all cells", "all cells, captured"])


class Way:
    """How programs are started, and where their windows are looked up."""

    def __init__(self, name, tally):
        self.name = name
        self.tally = None if name == "native" else tally

    def start(self, program, options, environment, only, seconds=None):
        name, path, _, settings = program
        words = [sys.executable, os.path.join(HERE, "nets", path), "--only", only, "--warm", str(options.warm), "--seconds",
                 str(options.seconds if seconds is None else seconds)]
        words += (["--steps", str(options.steps)] if options.steps else []) + (["--small"] if options.smoke else [])
        if self.tally:
            words = self.tally.command([*WAYS[self.name], *words])
        return Child(words, f"{name}, {self.name}", {**environment, **settings})

    def counters(self):
        """Of the session that opened last: programs run one after another."""
        if not self.tally or self.name == "tally":
            return {}
        rows = self.tally.ctl("window")
        return max(rows, key=lambda row: row["id"]) if rows else {}


def added(before, after):
    """What came to the counters; names whose count did not change are left out."""
    change = {}
    for key, value in after.items():
        if isinstance(value, dict):
            change[key] = {name: count - before.get(key, {}).get(name, 0) for name, count in value.items()
                           if count != before.get(key, {}).get(name, 0)}
        elif isinstance(value, int) and key != "id":
            change[key] = value - before.get(key, 0)
    return change


def run_program(program, way, child, options):
    """All cases of a program that was started; a cell for each."""
    cells = []
    try:
        child.answer(options.limit)
        child.say("go")
        before = {}
        while True:
            said = child.answer(options.limit)
            if "ready" in said:
                cells.append(Cell(program[0], said["ready"], way.name))
                before = way.counters()
                child.say("go")
            elif "case" in said:
                if not cells or cells[-1].case != said["case"]:  # before it was ready
                    cells.append(Cell(program[0], said["case"], way.name))
                cell = cells[-1]
                cell.samples, cell.digest, cell.failure = said.get("samples", []), said.get("digest", ""), said.get("failure", "")
                cell.window = added(before, way.counters()) if before else {}
                print(f"  {line_of(cell)}", file=sys.stderr, flush=True)
                child.say("go")
            else:
                break
    except (ways.Failed, ValueError) as failure:
        if cells and not cells[-1].samples:
            cells[-1].failure = str(failure)
        else:
            cells.append(Cell(program[0], "(all)" if not cells else f"(after {cells[-1].case})", way.name, failure=str(failure)))
        print(f"  {line_of(cells[-1])}", file=sys.stderr, flush=True)
        child.kill()
    return cells


def throughput(program, way, number, only, options, environment):
    """Steps a second of that many programs together."""
    children = []
    try:
        for _ in range(number):
            children.append(way.start(program, options, environment, only, options.tenant_seconds))
        for word in ("imported", "ready"):
            for child in children:
                if word not in child.answer(options.limit):
                    raise ways.Failed(f"{child.name}: not {word}; {child.said()}")
            for child in children:
                child.say("go")
        said = [child.answer(options.limit) for child in children]
        if any("samples" not in one for one in said) or len({one["digest"] for one in said}) > 1:
            raise ways.Failed(f"tenants, {way.name}: {[one.get('failure', one.get('digest')) for one in said]}")
        return sum(one["steps"] * len(one["samples"]) / one["elapsed"] for one in said)
    finally:
        for child in children:
            child.end()


def read_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=1, help="measured, per cell (default: %(default)s)")
    options.add_argument("--warm", type=float, default=1, help="before that, per cell (default: %(default)s)")
    options.add_argument("--steps", type=int, help="of a repetition; as each case says by default")
    options.add_argument("--programs", default=".", help="regular expression that finds a program's name (default: all)")
    options.add_argument("--cases", default=".", help="the same for cases")
    options.add_argument("--ways", default=",".join(WAYS), help="comma-separated (default: %(default)s)")
    options.add_argument("--tenants", type=int, default=4, help="programs together; 0: none (default: %(default)s)")
    options.add_argument("--tenant-seconds", type=float, default=2, help="measured together (default: %(default)s)")
    options.add_argument("--limit", type=float, default=120, help="seconds to wait for a case (default: %(default)s)")
    options.add_argument("--ahead", action="store_true", help="start a program while the one before it is measured: quicker, less exact")
    options.add_argument("--output", help="Markdown file; it also goes to stdout")
    options.add_argument("--json", dest="json_path", help="JSON file")
    options.add_argument("--csv", help="CSV file")
    options.add_argument("--plot", help="SVG file; needs matplotlib")
    options.add_argument("--from-json", help="results of an earlier run, to be written anew; nothing is measured")
    options.add_argument("--smoke", action="store_true", help="does everything run that needs no GPU? No numbers")
    chosen = options.parse_args()
    if chosen.smoke:
        chosen.programs, chosen.seconds, chosen.warm, chosen.steps, chosen.tenants, chosen.tenant_seconds = "NVRTC", 0, 0, 2, 2, 0
    unknown = set(chosen.ways.split(",")) - set(WAYS)
    if unknown:
        options.error(f"no way is called {', '.join(sorted(unknown))}")
    return chosen


def is_there(package):
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def write(facts, cells, tenants, options):
    page = nets_page.markdown(facts, cells, tenants, options.smoke)
    results = {"machine": facts, "smoke": options.smoke, "cells": [dataclasses.asdict(cell) for cell in cells], "tenants": tenants}
    output.write(page, results, options)
    if options.csv:
        nets_page.write_csv(options.csv, cells)
    return page


def measure(options, programs, caches):
    """Gives facts of the machine, cells and tenants; writes after each program, so that a run cut short leaves what it has."""
    root = ways.find_root()
    cells, tenants = [], {}
    environment = {name: os.path.join(caches, name.lower()) for name in
                   ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR")}
    with ways.daemon(root, "sim" if options.smoke else "auto") as tally:
        facts = {**machine.describe(root, ["torch", "triton", "jax", "cupy-cuda13x", "numba-cuda"]), "tallyd": tally.readiness}
        chosen = [Way(name, tally) for name in options.ways.split(",") if name != "native" or (not options.smoke and ways.has_gpu())]
        runs = [(program, way) for program in programs for way in chosen]
        waiting = []
        for number, (program, way) in enumerate(runs):
            for later_program, later_way in runs[number + len(waiting):number + (2 if options.ahead else 1)]:
                waiting.append(later_way.start(later_program, options, environment, options.cases))
            print(f"{program[0]}, {way.name}", file=sys.stderr, flush=True)
            child = waiting.pop(0)
            cells += run_program(program, way, child, options)
            child.end()
            write(facts, cells, tenants, options)
        program = next((program for program in programs if program[0] == TENANTS[0]), None)
        for case in TENANTS[1] if options.tenants and program else []:
            for way in chosen:
                try:
                    done = [throughput(program, way, number, f"^{case}$", options, environment) for number in (1, options.tenants)]
                    tenants.setdefault(case, {})[way.name] = done
                    print(f"  tenants, {case}, {way.name}: {done} steps a second", file=sys.stderr, flush=True)
                except (ways.Failed, ValueError) as failure:
                    cells.append(Cell(TENANTS[0], f"{case}, together", way.name, failure=str(failure)))
                    print(f"  {line_of(cells[-1])}", file=sys.stderr, flush=True)
    return facts, cells, tenants


def main():
    options = read_options()
    began = time.monotonic()
    if options.from_json:
        with open(options.from_json, encoding="utf-8") as text:
            known = json.load(text)
        facts, cells, tenants = known["machine"], [Cell(**cell) for cell in known["cells"]], known["tenants"]
    else:
        programs = [program for program in PROGRAMS if re.search(options.programs, program[0]) and all(map(is_there, program[2]))]
        with tempfile.TemporaryDirectory(prefix="tally-nets-") as caches:
            facts, cells, tenants = measure(options, programs, caches)
        facts["took"] = f"{time.monotonic() - began:.0f} s"
    print(write(facts, cells, tenants, options))
    if options.plot:
        nets_page.plot(cells, options.plot)
    return nets_page.problems(cells)


if __name__ == "__main__":
    ways.run_bench(main)
