"""A chain in PyTorch's own operations: what a pipeline is measured against, and what runs where none can."""
import torch
from torch.nn import functional


def _rms(hidden, columns, scale, epsilon):
    if hasattr(functional, "rms_norm"):
        return functional.rms_norm(hidden, (columns,), scale, epsilon)
    exact = hidden.float()
    normed = (exact * torch.rsqrt((exact * exact).mean(-1, keepdim=True) + epsilon)).to(hidden.dtype)
    return normed if scale is None else normed * scale


def run(chain, x, operand):
    """`operand`: a tensor by its name in the chain."""
    def of(name):
        return None if name is None else operand(name)

    hidden = x
    for layer in chain.layers:
        if layer.concat:
            hidden = torch.cat([x, hidden] if layer.concat == "first" else [hidden, x], -1)
        hidden = functional.linear(hidden, of(layer.weights), of(layer.bias))
        if layer.activation == "gelu_tanh":
            hidden = functional.gelu(hidden, approximate="tanh")
        elif layer.activation:
            hidden = getattr(functional, layer.activation)(hidden)
        if layer.norm == "layer":
            hidden = functional.layer_norm(hidden, (layer.out,), of(layer.scale), of(layer.shift), layer.epsilon)
        elif layer.norm == "rms":
            hidden = _rms(hidden, layer.out, of(layer.scale), layer.epsilon)
        if layer.residual:
            hidden = hidden + x
    return hidden


def traced(chain, insert=None):
    """A torch.fx.GraphModule of the input and chain.operands(); gives a tuple, as a graph of torch.compile does.

    `insert`: puts what is to do it into a graph, of nodes: the input and the operands. None: PyTorch's operations.
    """
    names = chain.operands()
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"a{i}") for i in range(1 + len(names))]
    if insert is None:
        tracer = torch.fx.proxy.GraphAppendingTracer(graph)
        x, *operands = [torch.fx.Proxy(node, tracer) for node in nodes]
        result = run(chain, x, dict(zip(names, operands)).__getitem__).node
    else:
        result = insert(graph, nodes[0], nodes[1:])
    graph.output((result,))
    return torch.fx.GraphModule({}, graph)
