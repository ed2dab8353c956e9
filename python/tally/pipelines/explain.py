"""What becomes of each chain of a model: its plan and times, or why it is left to PyTorch."""
import importlib.util
import os
import sys

from tally.pipelines import chains, gpu, graph as graphs, library, rules


class Unexplained(Exception):
    """The model or graph cannot be had: one sentence."""


def _torch():
    try:
        import torch
        return torch
    except ImportError:
        raise Unexplained("PyTorch is not here, which a model needs; give a graph's file (GRAPH.json), "
                          "made with --export where PyTorch is") from None


def _make(target):
    """What FILE.py:FUNCTION gives: (model, tuple of inputs)."""
    path, _, function = target.rpartition(":")
    if not path or not os.path.exists(path):
        raise Unexplained(f"'{path or target}' is not there; name a model as FILE.py:FUNCTION")
    definition = importlib.util.spec_from_file_location("tally_explained_model", path)
    module = importlib.util.module_from_spec(definition)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    definition.loader.exec_module(module)
    make = getattr(module, function, None)
    if not callable(make):
        raise Unexplained(f"'{path}' has no function '{function}'")
    made = make()
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise Unexplained(f"'{function}' is to return (model, inputs): a torch.nn.Module, and a tuple of what it is "
                          "called with")
    model, inputs = made
    return model, inputs if isinstance(inputs, tuple) else (inputs,)


def graphs_of_model(target):
    """(the graphs that a backend would get, the GPU as PyTorch names it or None). For inference."""
    torch = _torch()
    from tally.pipelines import fx
    model, inputs = _make(target)
    found = []
    device = next((tensor.device for tensor in inputs if isinstance(tensor, torch.Tensor) and tensor.is_cuda), None)
    with torch.no_grad():
        if hasattr(torch, "compile"):
            def collect(module, _):
                found.append(fx.graph_of(module, f"{target}, part {len(found)}", devices=device is not None))
                return module.forward
            torch.compile(model, backend=collect, dynamic=False)(*inputs)
        else:  # before PyTorch 2
            from torch.fx.passes.shape_prop import ShapeProp
            traced = torch.fx.symbolic_trace(model)
            ShapeProp(traced).propagate(*inputs)
            found.append(fx.graph_of(traced, target, devices=device is not None))
    return found, device


def _predict(chain):
    """The library's plan, for memory that holds nothing. Raises what gpu.memory and library.Pipeline raise."""
    largest = max(layer.columns * layer.out for layer in chain.layers) * 2
    columns = {layer.weights: layer.columns for layer in chain.layers}
    with gpu.memory(largest) as address:
        pipeline = library.Pipeline(chain, lambda name: address, columns.get, chain.rows)
        try:
            plan = pipeline.plan(chain.rows)
            return {"plan": str(plan), "predicted_us": plan.predicted_us}
        finally:
            pipeline.close()


def _outcome(chain, device):
    """(what the library and the GPU say, why it is not taken or "", why nothing more is known or "")."""
    if chain.refused:
        return {}, chain.refused, ""
    try:
        if device is not None:
            from tally.pipelines import measure
            measured = measure.measure(chain, device, {} if hasattr(_torch(), "compile") else None)
            known = {name: value for name, value in measured.items() if name != "refused"}
            return known, rules.of_times(measured), ""
        return _predict(chain), "", "not measured: needs PyTorch and the model on a GPU"
    except library.Refused as refused:
        return {}, str(refused), ""
    except (library.NoLibrary, library.PipelineError, gpu.NoGpu) as error:
        return {}, "", f"no plan: {error}"


def _layer(layer):
    fields = {"columns": layer.columns, "out": layer.out, "bias": layer.bias is not None,
              "activation": layer.activation, "norm": layer.norm, "concat": layer.concat, "residual": layer.residual}
    return {name: value for name, value in fields.items() if value not in ("", False)}


def explain(graph, device=None):
    """A dict for each chain. `device`: a torch.device, to measure there; None: only plans, as far as a GPU is there."""
    rows = []
    for chain in chains.find(graph):
        known, refused, unknown = _outcome(chain, device)
        rows.append({"layers": [_layer(layer) for layer in chain.layers], "rows": chain.rows, "dtype": chain.dtype,
                     "trains": chain.trains, "first": chain.layers[0].node, "output": chain.output, "ends": chain.ends,
                     "taken": not refused and "us" in known, "refused": refused, "unknown": unknown, **known})
    return rows


def _extras(layer):
    return ", ".join(filter(None, (
        layer.get("activation"), layer.get("norm") and f"{layer['norm']} norm",
        layer.get("concat") and "the input joined", layer.get("residual") and "the input added")))


def text(graph, rows):
    """For people."""
    lines = [f"{graph.name}: {len(graph.nodes)} operations, {len(rows)} chain{'s' if len(rows) != 1 else ''}"]
    for number, row in enumerate(rows, 1):
        widths = [row["layers"][0]["columns"]] + [layer["out"] for layer in row["layers"]]
        lines += ["", f"chain {number}: {' - '.join(map(str, widths))}, {row['rows']} rows, {row['dtype']}, "
                      f"{'for training, ' if row['trains'] else ''}from {row['first']} to {row['output']}"]
        extras = [_extras(layer) for layer in row["layers"]]
        lines += [f"  layer {i}: {extra}" for i, extra in enumerate(extras) if extra]
        lines.append(f"  ends because {row['ends']}" if row["ends"] != "it is not taken" else "  no chain")
        if "plan" in row:
            lines.append(f"  plan: {row['plan']}; predicted {row['predicted_us']:.1f} us")
        if "us" in row:
            lines.append("  measured: " + ", ".join(f"{name} {us:.1f} us" for name, us in row["us"].items()))
        lines.append(f"  refused: {row['refused']}" if row["refused"] else
                     "  taken" if row["taken"] else f"  may be taken; {row['unknown']}")
    return "\n".join(lines)


def read(target):
    """(graphs, device) of a GRAPH.json or a FILE.py:FUNCTION."""
    if target.endswith(".json"):
        return [graphs.read(target)], None
    return graphs_of_model(target)
