"""What may stand at one place of a chain, in all its spellings: linear, activation, norm, concatenation."""
import dataclasses

from tally.pipelines import operations, shapes, values

_SCALARS = (int, float)


def operand(node, what):
    """A node's input by its name in the signature; None if it is not there."""
    order = [name for name in operations.SIGNATURES[node.op] if name in ("input", "weight", "bias")]
    index = order.index(what) if what in order else len(node.inputs)
    value = node.inputs[index] if index < len(node.inputs) else None
    return value if isinstance(value, str) else None


def is_linear(graph, node):
    """A product of rows with a matrix. Those of attention have more dimensions."""
    if node.op not in operations.LINEARS or operand(node, "input") is None or operand(node, "weight") is None:
        return False
    weight = graph[operand(node, "weight")]
    return weight.shape is not None and len(weight.shape) == 2 and bool(graph[operand(node, "input")].shape)


def weights_of(graph, node):
    """The value [out][in]; None if the weights lie the other way round."""
    name = operand(node, "weight")
    if node.op == "linear":
        return name
    turned = graph[name]
    dims = [turned.attributes.get(name) for name in ("dim0", "dim1")]
    swaps = (turned.op == "t" or turned.op == "transpose" and dims in ([0, 1], [1, 0], [-1, -2], [-2, -1]) or
             turned.op == "permute" and turned.attributes.get("dims") in ([1, 0], [-1, -2]))
    return turned.names()[0] if swaps and turned.names() else None


def follow(graph, name):
    """(row views passed, users) of a value; instead of the users a sentence if they are too many or none."""
    passed = []
    while True:
        users = graph.users[name]
        if not users:
            return passed, "nothing takes its value"
        if len(users) == 1 and values.is_row_view(graph, users[0]) and not users[0].in_place:
            passed.append(users[0])
            name = users[0].name
            continue
        if len(users) == 1:
            return passed, "it is what the model gives" if users[0].op == "output" else users
        if _rms(graph, name, users) is not None:
            return passed, users
        return passed, f"its value is taken more than once: by {', '.join(sorted({user.op for user in users}))}"


def why_not(node):
    """A sentence about an operation that is no part of a chain."""
    if node.op in ("dropout", "native_dropout", "alpha_dropout"):
        return "dropout in training follows"
    if node.op in ("embedding", "gather", "index_select", "index", "scatter_add", "index_add"):
        return f"a gather follows: {node.op}"
    if "attention" in node.op or node.op in ("bmm", "baddbmm", "matmul", "softmax", "_softmax"):
        return f"attention follows: {node.op}"
    return f"{node.op} follows, which the kernel does not do"


def activation(node, hidden):
    """The kernel's name of an activation; "" if it is none."""
    if node.op not in operations.ACTIVATIONS or node.inputs[:1] != (hidden,):
        return ""
    if node.op != "gelu":
        return node.op
    return {"none": "gelu", "tanh": "gelu_tanh"}.get(node.attributes.get("approximate", "none"), "")


def other(node, hidden):
    """Of an addition of two values: the other one."""
    names = node.names()
    if len(names) != 2 or len(node.inputs) != 2 or hidden not in names or names[0] == names[1]:
        return None
    return names[1] if names[0] == hidden else names[0]


def joins(graph, node, hidden, input_root):
    """"first", "last": where the chain's input stands in a concatenation with the hidden columns; "" if in none."""
    names = node.names()
    if len(names) != 2 or node.shape is None or node.attributes.get("dim", 0) not in (-1, len(node.shape) - 1):
        return ""
    for order, name in (("first", names[0]), ("last", names[1])):
        if names[order == "first"] == hidden and name != hidden and values.root(graph, name) == input_root:
            return order
    return ""


@dataclasses.dataclass(frozen=True)
class Norm:
    kind: str
    scale: str
    shift: str
    epsilon: float
    nodes: list


def norm(graph, hidden, users, out):
    """A norm over the hidden columns; None if there is none; a sentence if the kernel does not do it."""
    decomposed = _rms(graph, hidden, users)
    if decomposed is not None:
        return decomposed if _fits(graph, decomposed, out) else "its norm's scale is not one value a column"
    node = users[0]
    if node.op not in operations.NORMS or node.inputs[:1] != (hidden,):
        return None
    kind = "layer" if "layer" in node.op else "rms"
    over = node.attributes.get("normalized_shape")
    if list(over if isinstance(over, (list, tuple)) else [over]) != [out]:
        return "its norm goes over more than the columns"
    epsilon = node.attributes.get("eps", 1e-5 if node.op == "layer_norm" else None)
    if type(epsilon) not in _SCALARS:
        return "its norm has no epsilon, which PyTorch's versions choose differently"
    if not 0 <= epsilon < 1:
        return f"its norm has an epsilon of {epsilon}"
    nodes = [node]
    if node.op in ("native_layer_norm", "_fused_rms_norm"):  # give further values, for a backward pass
        parts = graph.users[node.name]
        unused = [part for part in parts if part.op == "getitem" and not graph.users[part.name]]
        used = [part for part in parts if part not in unused]
        if len(used) != 1 or used[0].op != "getitem" or used[0].attributes.get("index") != 0:
            return "values of its norm are taken that a backward pass needs"
        nodes += unused + used
    names = [value if isinstance(value, str) else None for value in node.inputs[1:3]] + [None, None]
    found = Norm(kind, names[0], names[1] if kind == "layer" else None, float(epsilon), nodes)
    return found if _fits(graph, found, out) else "its norm's scale is not one value a column"


def _fits(graph, found, out):
    return all(name is None or graph[name].shape == (out,) for name in (found.scale, found.shift))


def _only(graph, node):
    """The one node that takes its value; None if there are more."""
    users = graph.users[node.name]
    return users[0] if len(users) == 1 else None


def _cast(graph, node):
    """The node behind a conversion, and the conversion; or itself."""
    if node is not None and node.op in ("to", "_to_copy", "type_as"):
        return _only(graph, node), [node]
    return node, []


def _rms(graph, hidden, users):
    """x * rsqrt(mean(x * x) + epsilon) [* scale], as models write RMSNorm out; computed in fp32 or not."""
    start, nodes = hidden, []
    if len(users) == 1 and users[0].op in ("to", "_to_copy") and users[0].dtype == "fp32":
        start, nodes = users[0].name, [users[0]]
        users = graph.users[start]
    squares = [user for user in users if user.op == "pow" and user.inputs == (start, 2) or
               user.op == "mul" and user.inputs == (start, start)]
    if not squares or any(node.in_place for node in users):
        return None
    square = squares[0]
    rest = [user for user in users if user is not square]
    mean = _only(graph, square)
    if len(rest) != 1 or mean is None or mean.op != "mean" or mean.attributes.get("keepdim") is not True:
        return None
    dim = mean.attributes.get("dim")
    if dim not in (-1, [-1], (-1,)):
        return None
    plus = _only(graph, mean)
    if plus is None or plus.op != "add" or plus.names() != [mean.name]:
        return None
    epsilons = [value for value in plus.inputs if type(value) in _SCALARS]
    root = _only(graph, plus)
    times = root and root.op == "rsqrt" and _only(graph, root)
    if not times or times is not rest[0] or times.op != "mul" or set(times.names()) != {start, root.name}:
        return None
    if len(epsilons) != 1 or plus.attributes.get("alpha", 1) != 1 or not 0 <= epsilons[0] < 1:
        return None
    nodes += [square, mean, plus, root, times]
    last, casts = _cast(graph, _only(graph, times))
    if nodes[0].op in ("to", "_to_copy"):
        if not casts or casts[0].dtype != graph[hidden].dtype:
            return None  # stays in fp32
        nodes += casts
    elif casts:
        last = None
    scale = other(last, nodes[-1].name) if last is not None and last.op == "mul" else None
    columns = shapes.columns(graph[hidden].shape)
    if scale is not None and graph[scale].shape == (columns,) and scale not in {node.name for node in nodes}:
        return Norm("rms", scale, None, float(epsilons[0]), nodes + [last])
    return Norm("rms", None, None, float(epsilons[0]), nodes)
