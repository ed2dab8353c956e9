#!/usr/bin/env python3
"""Steps of trainings end to end: torch.compile(backend="tally") against PyTorch's other ways, in one run.

    bench/pipelines/trainings.py --output trainings.md [--only REGEX] [--dtype bfloat16]
    bench/pipelines/trainings.py --smoke

A step is forward, loss, backward, and SGD. Ways: eager, torch.compile, backend tally; each captured into a CUDA graph.
Each way's gradients are compared with those of fp32. --smoke: small ones, also without a GPU; then chains are replaced,
and run in PyTorch's operations; nothing is timed. Needs PyTorch 2.4; a GPU of compute capability 8.0 or later.
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


def gradients(torch, model, run, inputs, target):
    """All of a step, beside each other in fp32."""
    for parameter in model.parameters():
        parameter.grad = None
    torch.nn.functional.mse_loss(run(*inputs).float(), target).backward()
    return torch.cat([parameter.grad.float().reshape(-1) for parameter in model.parameters()])


def made(torch, net, device, options, small):
    """(model, inputs, target, gradients in fp32)."""
    model, inputs = net.make(torch, device, getattr(torch, options.dtype), small=small)
    exact = copy.deepcopy(model).float()
    exact_inputs = [x.float() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        target = torch.randn_like(exact(*exact_inputs))
    return model, inputs, target, gradients(torch, exact, exact, exact_inputs, target)


def compiled(torch, model, way):
    from tally.pipelines import backend
    return torch.compile(model, dynamic=False, **({"backend": backend.tally} if way == "tally" else {}))


def smoke(torch, nets, options, device):
    for net in nets:
        model, inputs, target, want = made(torch, net, device, options, small=True)
        if device == "cuda":
            run, how = compiled(torch, model, "tally"), "torch.compile"
        else:
            from torch.fx.passes.shape_prop import ShapeProp

            from tally.pipelines import backend, chains, fx
            run = torch.fx.symbolic_trace(model)
            ShapeProp(run).propagate(*inputs)
            found = [chain for chain in chains.find(fx.graph_of(run, devices=False)) if not chain.refused]
            backend.replace(run, found)
            how = f"{len(found)} chains replaced"
        off = distance(gradients(torch, model, run, inputs, target), want)
        in_eager = distance(gradients(torch, model, model, inputs, target), want)
        print(f"{net.name}: {how}, gradients off by {off:.1e} ({in_eager:.1e} in PyTorch)")
        if not off <= 1.5 * in_eager:
            sys.exit(f"{net.name}: too far from fp32")


def measure(torch, net, options):
    from tally.pipelines import measure as timing
    model, inputs, target, want = made(torch, net, "cuda", options, small=False)
    row = {"net": net.name, "about": net.about, "ways": {}}
    start = copy.deepcopy(model.state_dict())
    for way in ("eager", *options.ways.split(",")):
        torch._dynamo.reset()
        model.load_state_dict(start)
        run = model if way == "eager" else compiled(torch, model, way)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        begin = time.monotonic()
        off = distance(gradients(torch, model, run, inputs, target), want)
        first_s = time.monotonic() - begin

        def step():
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.mse_loss(run(*inputs).float(), target).backward()
            optimizer.step()

        said = {"first_s": first_s, "distance": off, "us": timing.graph_us([step] * 2)}
        row["ways"][way] = said
        print(f"{net.name}, {way}: {said['us']:.1f} us, gradients off by {off:.1e}; first step {first_s:.0f} s",
              file=sys.stderr, flush=True)
    return row


def page(rows, about):
    lines = [about, "",
             "| network | eager's graph, us | torch.compile | tally | eager / tally | torch.compile / tally |",
             "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        us = {way: said["us"] for way, said in row["ways"].items()}
        cells = [f"{us[way]:.1f}" if way in us else "-" for way in ("eager", "compile", "tally")]
        cells += [f"{us[way] / us['tally']:.2f}" if {way, "tally"} <= set(us) else "-" for way in ("eager", "compile")]
        lines.append(f"| {row['about']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    options = networks.parse(sys.argv[1:], __doc__, ("compile", "tally"), "compile,tally")
    try:
        import torch
    except ImportError:
        sys.exit("trainings.py: PyTorch is not here")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tally.pipelines").setLevel(logging.INFO)  # which chains the backend takes
    nets = networks.named(networks.TRAINED, options)
    torch.manual_seed(1)
    if options.smoke:
        smoke(torch, nets, options, "cuda" if torch.cuda.is_available() else "cpu")
        return
    rows = []
    for net in nets:
        rows.append(measure(torch, net, options))
        print(json.dumps(rows[-1]), flush=True)
    networks.save(torch, options, rows, page)
    wrong = [row["net"] for row in rows
             if any(said["distance"] > 1.5 * row["ways"]["eager"]["distance"] for said in row["ways"].values())]
    if wrong:
        sys.exit("gradients farther from fp32 than eager PyTorch's: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
