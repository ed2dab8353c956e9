"""What a chain may be for libtally-pipelines.so to take it: as pipelines/plan/plan.cc says, which has the last word.

Each rule answers with a sentence without a full stop, or None.
"""
import dataclasses

from tally.pipelines import operations, shapes


@dataclasses.dataclass(frozen=True)
class Limits:
    least_in: int = 8
    most_in: int = 512
    in_step: int = 8
    least_out: int = 16
    most_out: int = 256
    out_step: int = 16
    most_first: int = 1024  # columns that a first layer gives, wider than most_out: computed in chunks
    first_step: int = 128
    most_layers: int = 32
    roof: int = 512  # columns on both sides from which the library is at its roof
    least_rows: int = 2049  # a quarter of the multiprocessors of an H100 or H200, 64 rows each


def is_wide(limits, out):
    """Gives more columns than any but a first layer may."""
    return limits.most_out < out <= limits.most_first and out % limits.first_step == 0


def has_dx(columns):
    """Whether the kernel gives the gradient of an input of so many columns."""
    return columns % Limits.out_step == 0 and columns <= Limits.most_out


def needs_gradient(graph, chain):
    """Of what it reads or computes."""
    names = [chain.input] + chain.operands() + [layer.node for layer in chain.layers] + [chain.output]
    return graph.grad and any(graph[name].requires_grad for name in names)


def of_layer(limits, columns, out, chain_input, may_be_wide):
    """Of a linear layer of `columns` to `out`; `chain_input`: columns of the chain's input, which it may start."""
    if columns is None or out is None:
        return "its widths are not known before it runs"
    if columns > limits.roof and out > limits.roof:
        return f"{columns} and {out} columns: from {limits.roof} on both sides the library is at its roof"
    if chain_input < limits.least_in or chain_input > limits.most_in or chain_input % limits.in_step:
        return (f"{chain_input} columns of input; the kernel takes multiples of {limits.in_step} from "
                f"{limits.least_in} to {limits.most_in}")
    is_narrow = limits.least_out <= out <= limits.most_out and out % limits.out_step == 0
    if not is_narrow and not (may_be_wide and is_wide(limits, out)):
        return (f"it gives {out} columns; the kernel gives multiples of {limits.out_step} from {limits.least_out} "
                f"to {limits.most_out}" +
                (f", its first layer of {limits.first_step} to {limits.most_first}" if out > limits.most_out else ""))
    return None


def of_types(nodes):
    """`nodes`: all values that a chain computes and reads."""
    types = {node.dtype for node in nodes}
    if types == {"fp32"}:
        return "fp32: the kernels take bf16 and fp16, and do not round to TF32"
    if len(types) > 1:
        return (f"{' and '.join(sorted(types))} together, as under autocast: the kernel reads weights as they are; "
                "convert the model instead, with .bfloat16() or .half()")
    (only,) = types
    return None if only in ("bf16", "fp16") else f"{only}: the kernels take bf16 and fp16"


def of_whole(limits, graph, chain, read, computed):
    """Of a finished chain. `read`, `computed`: its nodes."""
    wrong = of_types(read + computed)
    if wrong:
        return wrong
    if any(node.device not in ("", "cuda") for node in read):
        return "it is not on a GPU"
    if chain.trains and any(part in node.op for node in graph.nodes.values() for part in operations.SWITCHES):
        return "a backward pass may follow, and the graph switches gradients on or off"
    if len(chain.layers) == 1:
        return "one layer: there is nothing between layers to keep from the GPU's memory"
    rows = shapes.rows(graph[chain.layers[0].node].shape)
    if rows is None:
        return "its rows are not known before it runs, so nothing can be measured: compile with dynamic=False"
    if rows < limits.least_rows:
        return (f"{rows} row{'s fill' if rows != 1 else ' fills'} less than a quarter of the GPU; from "
                f"{limits.least_rows} on")
    return None


def of_times(measured):
    """Why a chain that was measured (measure.measure) is not taken; "" if it is: never slower than what it replaces."""
    if "refused" in measured:
        return measured["refused"]
    others = {name: us for name, us in measured["us"].items() if name != "tally"}
    best = min(others, key=others.get)
    if measured["us"]["tally"] < others[best]:
        return ""
    return f"measured: {measured['us']['tally']:.1f} us, and {best} takes {others[best]:.1f} us"
