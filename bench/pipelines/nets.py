#!/usr/bin/env python3
"""Three networks end to end: torch.compile(backend="tally") against PyTorch's other ways, in one run.

    bench/pipelines/nets.py --output nets.md [--only REGEX] [--dtype bfloat16]
    bench/pipelines/nets.py --smoke

Ways: eager; its CUDA graph; torch.compile; torch.compile with max-autotune; backend tally. All but the first are captured
into a CUDA graph. Each result is compared with fp32. --smoke: small ones, also without a GPU or torch.compile (then the
chains are replaced, and run in PyTorch's operations); nothing is timed. Needs PyTorch; a GPU of compute capability 9.0.
"""
import argparse
import copy
import json
import logging
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, os.pardir, "python")]


# Of torch.compile; graphs are made here, for all ways.
MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="the Markdown file; .json is put beside it")
    parser.add_argument("--smoke", action="store_true", help="only whether it works")
    parser.add_argument("--only", default="", help="regular expression of networks' names")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--ways", default="compile,tally,max-autotune", help="besides eager and its graph (default: %(default)s)")
    options = parser.parse_args(arguments)
    unknown = set(options.ways.split(",")) - set(MODES) - {"tally"}
    if unknown:
        parser.error(f"no way '{unknown.pop()}'; there are tally, {', '.join(MODES)}")
    if not options.smoke and not options.output:
        parser.error("--output is missing, or --smoke")
    return options


def distance(got, want):
    return ((got.float() - want).norm() / want.norm()).item()


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
    options = parse(sys.argv[1:])
    try:
        import torch
    except ImportError:
        sys.exit("nets.py: PyTorch is not here")
    import networks
    nets = [net for net in networks.NETS if re.search(options.only, net.name)]
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
    about = f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}, {options.dtype}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}"
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(page(rows, about))
    with open(os.path.splitext(options.output)[0] + ".json", "w", encoding="utf-8") as file:
        json.dump({"about": about, "rows": rows}, file, indent=1)
    wrong = [row["net"] for row in rows if not row["ways"]["tally"]["distance"] <= 1.5 * row["ways"]["graph"]["distance"]]
    if wrong:
        sys.exit("farther from fp32 than eager PyTorch: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
