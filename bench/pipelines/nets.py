#!/usr/bin/env python3
"""Three networks end to end: torch.compile(backend="tally") against PyTorch's other ways, in one run.

    bench/pipelines/nets.py --output nets.md [--only REGEX] [--dtype bfloat16]
    bench/pipelines/nets.py --smoke

Ways: eager; its CUDA graph; torch.compile; torch.compile with max-autotune; backend tally. All but the first are captured
into a CUDA graph. Each result is compared with fp32. --smoke: small ones, also without a GPU or torch.compile (then the
chains are replaced, and run in PyTorch's operations); nothing is timed. Needs PyTorch; a GPU of compute capability 8.0 or later.
"""
import copy
import json
import logging
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, os.pardir, "python")]

import networks  # noqa: E402  pylint: disable=wrong-import-position
from networks import distance  # noqa: E402  pylint: disable=wrong-import-position


# Of torch.compile; graphs are made here, for all ways.
MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}


def compiled(torch, model, way):
    if way == "tally":
        from tally.pipelines import backend
        return torch.compile(model, backend=backend.tally, dynamic=False)
    return torch.compile(model, mode=MODES[way], dynamic=False)


def chains_of(torch, model, inputs):
    """Of a model: how many of its chains may be taken, as the matcher says."""
    from torch.fx.passes.shape_prop import ShapeProp

    from tally.pipelines import chains, fx
    module = torch.fx.symbolic_trace(model)
    ShapeProp(module).propagate(*inputs)
    return module, [chain for chain in chains.find(fx.graph_of(module, devices=False)) if not chain.refused]


def smoke(torch, nets, options, device):
    for net in nets:
        model, inputs = net.make(torch, device, getattr(torch, options.dtype), small=True)
        want = copy.deepcopy(model).float()(*[x.float() if x.is_floating_point() else x for x in inputs])
        if device == "cuda" and hasattr(torch, "compile"):
            got, how = compiled(torch, model, "tally")(*inputs), "torch.compile"
        else:
            from tally.pipelines import backend
            module, found = chains_of(torch, model, inputs)
            if len(found) != net.chains:
                sys.exit(f"{net.name}: {len(found)} chains, not {net.chains}")
            backend.replace(module, found)
            got, how = module(*inputs), f"{len(found)} chains replaced"
        off = distance(got, want)
        print(f"{net.name}: {how}, off by {off:.1e} ({distance(model(*inputs), want):.1e} in PyTorch)")
        if not off < 0.05:
            sys.exit(f"{net.name}: too far from fp32")


def measure(torch, net, options):
    from tally.pipelines import explain, fx, measure as timing
    model, inputs = net.make(torch, "cuda", getattr(torch, options.dtype), small=False)
    want = copy.deepcopy(model).float()(*[x.float() if x.is_floating_point() else x for x in inputs])
    row = {"net": net.name, "about": net.about, "ways": {}}

    def add(way, run):
        begin = time.monotonic()
        result = run()
        said = {"first_s": time.monotonic() - begin, "distance": distance(result, want), "us": timing.graph_us([run] * 4)}
        row["ways"][way] = said
        print(f"{net.name}, {way}: {said['us']:.1f} us, off by {said['distance']:.1e}; first run {said['first_s']:.0f} s", file=sys.stderr, flush=True)

    add("graph", lambda: model(*inputs))
    for way in options.ways.split(","):
        torch._dynamo.reset()
        run = compiled(torch, model, way)
        add(way, lambda: run(*inputs))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        model(*inputs)
    end.record()
    end.synchronize()
    row["eager_us"] = begin.elapsed_time(end) * 1e3 / 20
    torch._dynamo.reset()
    graphs = []

    def collect(module, _):
        graphs.append(fx.graph_of(module))
        return module.forward

    torch.compile(model, backend=collect, dynamic=False)(*inputs)
    row["chains"] = [chain for graph in graphs for chain in explain.explain(graph, torch.device("cuda"))]
    return row


def page(rows, about):
    lines = [about, "", "| network | chains taken | eager, us | its graph | torch.compile | max-autotune | tally | graph / tally | best other / tally |",
             "|---|---:|" + "---:|" * 7]
    for row in rows:
        us = {way: said["us"] for way, said in row["ways"].items()}
        gains = "- | -"
        if "tally" in us:
            gains = f"{us['graph'] / us['tally']:.2f} | {min(us[way] for way in us if way != 'tally') / us['tally']:.2f}"
        taken = sum(chain["taken"] for chain in row["chains"])
        lines.append(f"| {row['about']} | {taken} of {len(row['chains'])} | {row['eager_us']:.0f} | " +
                     " | ".join(f"{us[way]:.1f}" if way in us else "-" for way in ("graph", *MODES, "tally")) +
                     f" | {gains} |")
    return "\n".join(lines) + "\n"


def main():
    options = networks.parse(sys.argv[1:], __doc__, ("tally", *MODES), "compile,tally,max-autotune")
    try:
        import torch
    except ImportError:
        sys.exit("nets.py: PyTorch is not here")
    nets = networks.named(networks.NETS, options)
    torch.manual_seed(1)
    with torch.no_grad():
        if options.smoke:
            logging.basicConfig(format="%(message)s")
            logging.getLogger("tally.pipelines").setLevel(logging.INFO)  # which chains the backend takes
            smoke(torch, nets, options, "cuda" if torch.cuda.is_available() else "cpu")
            return
        rows = []
        for net in nets:
            rows.append(measure(torch, net, options))
            print(json.dumps(rows[-1]), flush=True)
    networks.save(torch, options, rows, page)
    wrong = [row["net"] for row in rows if not row["ways"]["tally"]["distance"] <= 1.5 * row["ways"]["graph"]["distance"]]
    if wrong:
        sys.exit("farther from fp32 than eager PyTorch: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
