#!/usr/bin/env python3
"""Bytes that a chain reads from the GPU's memory and writes there: eager PyTorch, fused epilogues, libtally-pipelines.so.

    bench/pipelines/dram.py --output dram.md [--only REGEX] [--rows 65536]

Nsight Compute (ncu) counts them, on a GPU that lets it. Each way works on buffers that are larger together than the L2
cache, once for all of them; caches are left as they are. The second turn is what is counted.
"""
import argparse
import csv
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
MARK = "ways, and their passes: "
LIMIT_S = 120


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="the Markdown file; .json is put beside it")
    parser.add_argument("--only", default="", help="regular expression of chains' names")
    parser.add_argument("--rows", default=65536, type=int)
    parser.add_argument("--ncu", default="ncu", help="the program (default: %(default)s)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # a chain: this process is the one that is watched
    return parser.parse_args(arguments)


def inside(options):
    """Runs each way once in a range of its own."""
    import torch

    import chains
    import library
    import pipelines
    torch.manual_seed(1)
    chain = next(chain for chain in chains.CHAINS if chain.name == options.inside)
    operands = library.Operands(chain, torch.bfloat16)
    xs, ys = pipelines.buffers(torch, chain, options.rows, torch.bfloat16)
    pipeline = library.Pipeline(operands, options.rows)
    ways = {"eager": lambda x, y: operands.forward(x), "fused": (lambda x, y: operands.fused(x)) if operands.has_fused() else None,
            "pipeline": pipeline.launch}
    ways = {name: run for name, run in ways.items() if run}
    for name, run in ways.items():
        for turn in ("warms up", name):
            torch.cuda.nvtx.range_push(turn)
            for x, y in zip(xs, ys):
                run(x, y)
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_pop()
    print(MARK + json.dumps([list(ways), len(xs)]))


def measure(options, chain):
    """By way: (MB a pass, kernels a pass)."""
    found = {}
    words = [options.ncu, "--csv", "--page", "raw", "--cache-control", "none", "--clock-control", "none", "--nvtx", "--print-nvtx-rename", "none",
             "--metrics", ",".join(METRICS)]
    for way in ("eager", "fused", "pipeline"):
        words += ["--nvtx-include", f"{way}/"]
    words += [sys.executable, os.path.abspath(__file__), "--output", options.output, "--rows", str(options.rows), "--inside", chain.name]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
    marks = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    table = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode != 0 or not marks or not table:
        sys.exit(f"{chain.name}: ncu gave nothing:\n{done.stdout[-2000:]}")
    ways, passes = json.loads(marks[0][len(MARK):])
    rows = list(csv.DictReader(table))
    units, kernels = rows[0], rows[1:]
    scales = {"byte": 1e-6, "Kbyte": 1e-3, "Mbyte": 1, "Gbyte": 1e3}
    column = next(name for name in units if "Push/Pop_Range" in name)
    for way in ways:
        own = [kernel for kernel in kernels if way in re.split(r"[^a-z]+", kernel[column])]
        megabytes = sum(float(kernel[metric].replace(",", "")) * scales[units[metric]] for kernel in own for metric in METRICS)
        found[way] = (megabytes / passes, len(own) / passes)
    return found


def main():
    options = parse(sys.argv[1:])
    sys.path.insert(0, HERE)
    if options.inside:
        return inside(options)
    import chains
    lines = ["| chain | rows | eager, MB | fused epilogues, MB | pipeline, MB | fewer than eager | least, MB |", "|---|---:|---:|---:|---:|---:|---:|"]
    results = {}
    for chain in chains.CHAINS:
        if not re.search(options.only, chain.name):
            continue
        found = results[chain.name] = measure(options, chain)
        least = 2 * options.rows * (chain.input + chain.layers[-1].out) / 1e6
        fused = f"{found['fused'][0]:.1f}" if "fused" in found else "-"
        lines.append(f"| {chain.name} | {options.rows} | {found['eager'][0]:.1f} | {fused} | "
                     f"{found['pipeline'][0]:.1f} | {1 - found['pipeline'][0] / found['eager'][0]:.3f} | {least:.1f} |")
        print(lines[-1], flush=True)
        with open(options.output, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        with open(os.path.splitext(options.output)[0] + ".json", "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return None


if __name__ == "__main__":
    sys.exit(main())
