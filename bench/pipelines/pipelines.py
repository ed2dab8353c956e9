#!/usr/bin/env python3
"""Chains of narrow layers: libtally-pipelines.so against PyTorch, in one run.

    bench/pipelines/pipelines.py --output pipelines.md [--only REGEX] [--rows 4096,16384,65536] [--compiled default,max-autotune]

Every way is captured into a CUDA graph of many passes over buffers that are larger together than the L2 cache. Besides
eager PyTorch: the same with bias and ReLU as epilogues of cuBLASLt (where a chain has no other activation), and modes of
torch.compile, which take a minute each. "best" is the best of all that were measured. The results of each are compared
with a computation in fp32. Needs a GPU and PyTorch.
"""
import argparse
import json
import os
import re
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUFFER_BYTES = 160e6  # of inputs and outputs that take turns; three times the L2 cache of an H100


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="the Markdown file; .json is put beside it")
    parser.add_argument("--only", default="", help="regular expression of chains' names")
    parser.add_argument("--rows", default="4096,16384,65536")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--compiled", default="", help="modes of torch.compile, measured as well: default, max-autotune")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each measurement")
    parser.add_argument("--library", help="libtally-pipelines.so, if not the one that the package finds")
    return parser.parse_args(arguments)


def pass_us(torch, passes, seconds):
    """Microseconds a pass, quantiles over replays of a graph: (p10, p50, p90)."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for run in passes:
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(max(1, 16 // len(passes))):
            for run in passes:
                run()
    count = len(passes) * max(1, 16 // len(passes))
    times = []
    end = time.monotonic() + seconds
    while len(times) < 8 or time.monotonic() < end:
        begin, finish = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        finish.record()
        finish.synchronize()
        times.append(begin.elapsed_time(finish) * 1e3 / count)
    times = times[2:]  # the first ones warm up
    cuts = statistics.quantiles(times, n=10)
    return cuts[0], statistics.median(times), cuts[-1]


def distance(got, want):
    return ((got.float() - want).norm() / want.norm()).item()


def buffers(torch, chain, rows, dtype):
    """Inputs and outputs that are larger together than the L2 cache."""
    row_bytes = 2 * (chain.input + chain.layers[-1].out)
    count = max(2, min(32, int(BUFFER_BYTES / (rows * row_bytes))))
    return ([torch.randn(rows, chain.input, device="cuda").to(dtype) for _ in range(count)],
            [torch.full((rows, chain.layers[-1].out), float("nan"), device="cuda", dtype=dtype) for _ in range(count)])


def measure(torch, chain, rows, options, dtype):
    import library as pipelines
    operands = pipelines.Operands(chain, dtype)
    xs, ys = buffers(torch, chain, rows, dtype)
    want = operands.forward(xs[0], exact=True)
    row = {"chain": chain.name, "rows": rows, "ways": {}}

    def add(name, result, passes):
        row["ways"][name] = {"us": pass_us(torch, passes, options.seconds), "distance": distance(result, want)}

    add("eager graph", operands.forward(xs[0]), [lambda x=x: operands.forward(x) for x in xs])
    if operands.has_fused():
        add("fused epilogues", operands.fused(xs[0]), [lambda x=x: operands.fused(x) for x in xs])
    for mode in filter(None, options.compiled.split(",")):
        torch._dynamo.reset()
        compiled = torch.compile(operands.forward, mode=None if mode == "default" else mode + "-no-cudagraphs")
        add("compile " + mode, compiled(xs[0]), [lambda x=x: compiled(x) for x in xs])
    try:
        begin = time.monotonic()
        pipeline = pipelines.Pipeline(operands, rows)
        row["instantiate_s"] = time.monotonic() - begin
        pipeline.launch(xs[0], ys[0])
        torch.cuda.synchronize()
        row["plan"] = pipeline.plan(rows)
        add("pipeline", ys[0], [lambda x=x, y=y: pipeline.launch(x, y) for x, y in zip(xs, ys)])
        pipeline.destroy()
    except pipelines.Refused as refused:
        row["refused"] = str(refused)
    return row


def page(rows, about):
    ways = list(dict.fromkeys(way for row in rows for way in row["ways"]))
    lines = [about, "", "| chain | rows | " + " | ".join(f"{way}, us" for way in ways) + " | eager graph / pipeline | best other / pipeline | predicted, us | form |",
             "|---|---:|" + "---:|" * (len(ways) + 3) + "---|"]
    for row in rows:
        cells = [f"{row['ways'][way]['us'][1]:.1f}" if way in row["ways"] else "" for way in ways]
        if "plan" in row:
            plan = row["plan"]
            ours = row["ways"]["pipeline"]["us"][1]
            best = min(values["us"][1] for way, values in row["ways"].items() if way != "pipeline")
            form = "resident" if plan["weights_resident"] else f"streamed, {plan['stages']} places"
            cells += [f"{row['ways']['eager graph']['us'][1] / ours:.2f}", f"{best / ours:.2f}", f"{plan['predicted_us']:.1f}", f"{form}, {plan['warpgroups']} warpgroups"]
        else:
            cells += ["", "", "", "refused: " + row["refused"]]
        lines.append(f"| {row['chain']} | {row['rows']} | " + " | ".join(cells) + " |")
    lines += ["", "Geometric means over numbers of rows:", ""]
    for chain in dict.fromkeys(row["chain"] for row in rows):
        ours = [row["ways"] for row in rows if row["chain"] == chain and "plan" in row]
        if ours:
            over = lambda other: statistics.geometric_mean(other(ways) / ways["pipeline"]["us"][1] for ways in ours)
            best = over(lambda ways: min(values["us"][1] for way, values in ways.items() if way != "pipeline"))
            lines.append(f"* {chain}: {over(lambda ways: ways['eager graph']['us'][1]):.2f} over the graph of eager, {best:.2f} over the best")
    return "\n".join(lines) + "\n"


def main():
    options = parse(sys.argv[1:])
    if options.library:
        os.environ["TALLY_PIPELINES_LIBRARY"] = options.library
    sys.path.insert(0, HERE)
    import torch

    import chains
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    dtype = getattr(torch, options.dtype)
    rows = []
    for chain in chains.CHAINS:
        if not re.search(options.only, chain.name):
            continue
        for count in map(int, options.rows.split(",")):
            row = measure(torch, chain, count, options, dtype)
            rows.append(row)
            print(chain.name, count, " | ".join(f"{way} {values['us'][1]:.1f} us, off by {values['distance']:.1e}"
                                                for way, values in row["ways"].items()), row.get("refused", ""), flush=True)
    about = f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}, {options.dtype}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}"
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(page(rows, about))
    with open(os.path.splitext(options.output)[0] + ".json", "w", encoding="utf-8") as file:
        json.dump({"about": about, "rows": rows}, file, indent=1)
    wrong = [row for row in rows if "plan" in row and not row["ways"]["pipeline"]["distance"] <= 1.5 * row["ways"]["eager graph"]["distance"]]
    if wrong:
        sys.exit("farther from fp32 than eager PyTorch: " + ", ".join(f"{row['chain']} {row['rows']}" for row in wrong))


if __name__ == "__main__":
    main()
