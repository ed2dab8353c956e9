"""Runs a neutral graph in plain Python, operation by operation or with its chains as one: slow, and plainly right.

A value is (shape, list of numbers, row-major).
"""
import math

from tally.pipelines import graph as graphs


def rows_of(value):
    shape, numbers = value
    columns = shape[-1]
    return [numbers[i:i + columns] for i in range(0, len(numbers), columns)]


def from_rows(shape, rows):
    return tuple(shape), [number for row in rows for number in row]


def linear(x, weights, bias=None):
    columns = rows_of(weights)
    rows = [[sum(a * b for a, b in zip(row, column)) for column in columns] for row in rows_of(x)]
    if bias is not None:
        rows = [[a + b for a, b in zip(row, bias[1])] for row in rows]
    return from_rows(x[0][:-1] + (len(columns),), rows)


def activation(kind, x):
    functions = {"relu": lambda v: max(v, 0.0), "silu": lambda v: v / (1 + math.exp(-v)), "tanh": math.tanh,
                 "gelu": lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))),
                 "gelu_tanh": lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))}
    return x[0], [functions[kind](value) for value in x[1]]


def norm(kind, x, scale, shift, epsilon):
    rows = []
    for row in rows_of(x):
        mean = sum(row) / len(row) if kind == "layer" else 0.0
        root = 1 / math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + epsilon)
        row = [(v - mean) * root for v in row]
        row = [v * s for v, s in zip(row, scale[1])] if scale is not None else row
        rows.append([v + s for v, s in zip(row, shift[1])] if shift is not None else row)
    return from_rows(x[0], rows)


def cat(a, b):
    return from_rows(a[0][:-1] + (a[0][-1] + b[0][-1],), [x + y for x, y in zip(rows_of(a), rows_of(b))])


def pairwise(function, a, b):
    """Both of one shape, or b a number, or one row or one column for all of a; likewise turned round."""
    if not isinstance(b, tuple):
        return a[0], [function(value, b) for value in a[1]]
    if len(a[1]) < len(b[1]):
        return pairwise(lambda x, y: function(y, x), b, a)
    if a[0] != b[0] and b[0][-1] == 1:
        return from_rows(a[0], [[function(v, other) for v in row] for row, other in zip(rows_of(a), b[1])])
    return a[0], [function(value, b[1][i % len(b[1])]) for i, value in enumerate(a[1])]


def turned(x):
    return x[0][::-1], [number for column in zip(*rows_of(x)) for number in column]


def _operation(node, inputs):
    x, attributes = inputs[0] if inputs else None, node.attributes
    if node.op in ("relu", "silu", "tanh"):
        return activation(node.op, x)
    if node.op == "gelu":
        return activation("gelu_tanh" if attributes.get("approximate") == "tanh" else "gelu", x)
    if node.op == "linear":
        return linear(*inputs)
    if node.op == "addmm":
        return linear(inputs[1], turned(inputs[2]), inputs[0])
    if node.op == "mm":
        return linear(x, turned(inputs[1]))
    if node.op == "t":
        return turned(x)
    if node.op in ("layer_norm", "native_layer_norm", "rms_norm"):
        scale, shift = (list(inputs[1:]) + [None, None])[:2]
        return norm("layer" if "layer" in node.op else "rms", x, scale, shift, attributes["eps"])
    if node.op == "cat":
        return cat(*inputs)
    if node.op in ("add", "mul", "pow"):
        return pairwise({"add": lambda a, b: a + attributes.get("alpha", 1) * b, "mul": lambda a, b: a * b, "pow": pow}[node.op], *inputs)
    if node.op == "mean":
        return x[0][:-1] + (1,), [sum(row) / len(row) for row in rows_of(x)]
    if node.op == "rsqrt":
        return x[0], [1 / math.sqrt(value) for value in x[1]]
    assert node.op in ("view", "dropout", "identity", "getitem", "to"), node.op
    return node.shape or x[0], x[1]


def run_chain(chain, x, operand):
    """As the kernel does it. `operand`: a value by its name."""
    def of(name):
        return None if name is None else operand(name)

    hidden = x = from_rows((len(rows_of(x)), x[0][-1]), rows_of(x))
    for layer in chain.layers:
        if layer.concat:
            hidden = cat(x, hidden) if layer.concat == "first" else cat(hidden, x)
        hidden = linear(hidden, of(layer.weights), of(layer.bias))
        hidden = activation(layer.activation, hidden) if layer.activation else hidden
        hidden = norm(layer.norm, hidden, of(layer.scale), of(layer.shift), layer.epsilon) if layer.norm else hidden
        hidden = pairwise(lambda a, b: a + b, hidden, x) if layer.residual else hidden
    return hidden


def run(graph, given, chains=()):
    """What the node `output` takes. `given`: values of inputs and parameters by name; `chains`: run as one each."""
    values, inside = {}, {name: chain for chain in chains for name in chain.nodes}
    for node in graph.nodes.values():
        if node.op in ("input", "parameter"):
            values[node.name] = given[node.name]
        elif node.op == "output":
            return [values[name] for name in node.names()]
        elif node.name not in inside:
            values[node.name] = _operation(node, [values[v] if isinstance(v, str) else v for v in node.inputs])
        elif node.name == inside[node.name].output:  # where a backend puts its one call
            chain = inside[node.name]
            values[node.name] = node.shape, run_chain(chain, values[chain.input], values.__getitem__)[1]
    raise graphs.GraphError("no output")
