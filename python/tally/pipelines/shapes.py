"""Whether the shapes around a node can be. Of the operations that chains are made of; of others nothing is known."""
from tally.pipelines import operations


def _same(a, b):
    """Sizes that are not known yet fit everything."""
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b))


def _differs(a, b):
    return a is not None and b is not None and not _same(a, b)


def columns(shape):
    return shape[-1] if shape else None


def count(shape):
    """Elements; None if a size is unknown."""
    product = 1
    for size in shape:
        if size is None:
            return None
        product *= size
    return product


def rows(shape):
    return count(shape[:-1])


def _linear(node, shape_of):
    at = operations.SIGNATURES[node.op]
    input_shape, weight_shape = (shape_of(at.index(name)) for name in ("input", "weight"))
    if input_shape is None or weight_shape is None or node.shape is None:
        return None
    if not input_shape:
        return "its input has no dimension"
    if len(weight_shape) != 2:
        return None if node.op in ("matmul", "linear") else "its weights have not two dimensions"
    out, taken = weight_shape if node.op == "linear" else weight_shape[::-1]
    if _differs((taken,), input_shape[-1:]):
        return f"its weights are for {taken} columns, and its input has {input_shape[-1]}"
    if not _same(node.shape, input_shape[:-1] + (out,)):
        return f"it gives {list(node.shape)}, and its operands make {list(input_shape[:-1]) + [out]}"
    return None


def _cat(node, shape_of):
    parts = [shape_of(i) for i in range(len(node.inputs))]
    dim = node.attributes.get("dim", 0)
    if node.shape is None or not parts or any(part is None for part in parts) or type(dim) is not int:
        return None
    if any(len(part) != len(node.shape) for part in parts) or not -len(node.shape) <= dim < len(node.shape):
        return None  # an empty tensor may be joined to any
    sizes = [part[dim] for part in parts]
    if None not in sizes and node.shape[dim] not in (None, sum(sizes)):
        return f"it gives {node.shape[dim]} where its parts have {sum(sizes)}"
    return None


def mistake(node, nodes):
    """A sentence, or None. `nodes`: by name, all that this one takes."""
    def shape_of(index):
        name = node.inputs[index] if index < len(node.inputs) else None
        return nodes[name].shape if isinstance(name, str) else None

    if node.op in operations.LINEARS:
        return _linear(node, shape_of)
    if node.op == "cat":
        return _cat(node, shape_of)
    if node.op in operations.ACTIVATIONS + ("layer_norm", "rms_norm") and _differs(node.shape, shape_of(0)):
        return f"it gives {list(node.shape)} and takes {list(shape_of(0))}"
    if node.op == "t" and shape_of(0) is not None and _differs(node.shape, shape_of(0)[::-1]):
        return f"it gives {list(node.shape)} and takes {list(shape_of(0))}"
    return None
