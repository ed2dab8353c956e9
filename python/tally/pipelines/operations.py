"""Names of a graph's operations: one canonical name for all their spellings, and what each argument is.

`aten.addmm.default`, `torch.addmm`, and `addmm` are the same; so are `relu_`, `relu` with inplace, and `nn.ReLU`.
"""
import re

ACTIVATIONS = ("relu", "gelu", "silu")
NORMS = ("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
LINEARS = ("linear", "addmm", "mm", "matmul")
# The same rows in the same order: what they give is what they take, as far as rows of the last dimension are kept.
ROW_VIEWS = ("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous", "detach",
             "alias", "to", "_to_copy", "type_as", "clone", "identity", "dropout", "alpha_dropout")
# Parts of names of what switches gradients on and off.
SWITCHES = ("grad_enabled", "inference_mode")
# What they give is memory of their own. Anything else may be another view of what it takes.
FRESH = frozenset(ACTIVATIONS + LINEARS + ("layer_norm", "rms_norm", "cat", "add", "sub", "mul", "div", "pow", "mean",
                                           "sum", "rsqrt", "tanh", "sigmoid", "softmax", "bmm", "embedding", "gather",
                                           "index_select", "clone", "exp", "neg", "cos", "sin"))

# Arguments in order; those in _TENSORS are inputs of the node, the others attributes.
SIGNATURES = {
    "linear": ("input", "weight", "bias"),
    "addmm": ("bias", "input", "weight"),
    "mm": ("input", "weight"),
    "matmul": ("input", "weight"),
    "t": ("input",),
    "transpose": ("input", "dim0", "dim1"),
    "permute": ("input", "dims"),
    "relu": ("input", "inplace"),
    "silu": ("input", "inplace"),
    "gelu": ("input", "approximate"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps", "cudnn_enable"),
    "native_layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "_fused_rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "cat": ("tensors", "dim"),
    "add": ("input", "other", "alpha"),
    "dropout": ("input", "p", "training", "inplace"),
    "alpha_dropout": ("input", "p", "training", "inplace"),
    "mean": ("input", "dim", "keepdim"),
    "pow": ("input", "other"),
    "rsqrt": ("input",),
    "getitem": ("input", "index"),
    "type_as": ("input",),
}
_TENSORS = frozenset(("input", "weight", "bias", "tensors", "other"))
_ARGUMENT_NAMES = {"axis": "dim", "train": "training", "mat1": "input", "mat2": "weight", "self": "input"}

_PREFIX = re.compile(r"^(torch\.ops\.aten\.|torch\.nn\.functional\.|torch\.nn\.modules\.[a-z]+\.|torch\.nn\.|"
                     r"torch\._C\._nn\.|torch\.|aten\.|aten::|_operator\.|operator\.)")
_OVERLOAD = re.compile(r"\.(default|Tensor|Scalar|Tensor_Scalar|dim|dim_IntList|int|dtype|out|input|device|other|"
                       r"self)$")
_SYNONYMS = {
    "concat": "cat", "concatenate": "cat", "truediv": "div", "swish": "silu", "Linear": "linear", "ReLU": "relu",
    "GELU": "gelu", "SiLU": "silu", "LayerNorm": "layer_norm", "RMSNorm": "rms_norm", "Dropout": "dropout",
    "Identity": "identity", "T": "t", "numpy_T": "t", "swapaxes": "transpose", "half": "to", "bfloat16": "to",
    "float": "to", "type": "to", "__getitem__": "getitem",
}
_IN_PLACE = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "setitem": "setitem", "imatmul": "matmul"}


def canonical(spelling):
    """(canonical name, whether it changes its first input in place)."""
    name = spelling.strip()
    while (shorter := _PREFIX.sub("", name)) != name:
        name = shorter
    name = _OVERLOAD.sub("", name)
    if name in _IN_PLACE:
        return _IN_PLACE[name], True
    if name.startswith("__i") and name.endswith("__") and name[2:-2] in _IN_PLACE:
        return _IN_PLACE[name[2:-2]], True
    if name.endswith("_") and not name.endswith("__"):
        return _SYNONYMS.get(name[:-1], name[:-1]), True
    return _SYNONYMS.get(name, name), False


def sort_arguments(op, positional, named):
    """Splits a call's arguments into ([inputs in order of the signature], {attributes}); lists of inputs stay lists."""
    signature = SIGNATURES.get(op)
    if signature is None:
        return list(positional), dict(named)
    given = dict(zip(signature, positional))
    # A row view's further arguments are sizes, which the node's shape has.
    for name, value in named.items():
        given[_ARGUMENT_NAMES.get(name, name)] = value
    inputs = [given.get(name) for name in signature if name in _TENSORS]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs, {name: value for name, value in given.items() if name not in _TENSORS and value is not None}
