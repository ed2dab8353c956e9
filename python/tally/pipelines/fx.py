"""Reads torch.fx graphs: those that torch.compile gives a backend, ATen graphs, and those of torch.fx.symbolic_trace.

Names of nodes stay, so that what the matcher finds can be replaced in the fx graph. Works from PyTorch 1.13 on.
"""
import torch
import torch.fx

from tally.pipelines import operations
from tally.pipelines.graph import Graph, Node

_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64",
           torch.int32: "int", torch.int64: "int", torch.uint8: "int", torch.bool: "int"}


def _sizes(shape):
    """A size that is a symbol is not known before the graph runs."""
    return tuple(int(size) if isinstance(size, int) else None for size in shape)


def _described(value):
    """(shape, dtype, requires_grad, device) of what a node gives."""
    if isinstance(value, torch.Tensor):
        return _sizes(value.shape), _DTYPES.get(value.dtype, "other"), bool(value.requires_grad), value.device.type
    if type(value).__name__ == "TensorMetadata":  # of torch.fx's ShapeProp
        return _sizes(value.shape), _DTYPES.get(value.dtype, "other"), bool(value.requires_grad), ""
    return None, "other", False, ""


def value_of(node):
    for key in ("example_value", "val", "tensor_meta"):
        if key in node.meta:
            return node.meta[key]
    return None


def _attribute(module, target):
    for part in target.split("."):
        module = getattr(module, part)
    return module


def _spelling(target):
    """A method's name, an operation of ATen, or a function with its module."""
    if isinstance(target, str):
        return target
    if type(target).__name__ == "OpOverload":
        return str(target)
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", str(target))
    return f"{module}.{name}" if module else name


def _plain(value):
    """An attribute's value for the neutral form; a name for what has none there."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return str(value)


class _Reader:
    def __init__(self, module, devices):
        self.module, self.devices, self.nodes, self.parameters = module, devices, [], {}

    def read(self):
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self._add(node, "input")
            elif node.op == "get_attr":
                value = _attribute(self.module, node.target)
                self._add(node, "parameter", value=value if isinstance(value, torch.Tensor) else None)
            elif node.op == "call_module":
                self._module(node, self.module.get_submodule(node.target))
            elif node.op == "output":
                self._add(node, "output", self._flat(node.args))
            else:
                self._call(node, node.args, node.kwargs)
        return self.nodes

    def _add(self, node, op, inputs=(), attributes=None, in_place=False, value=None):
        self._append(node.name, op, value_of(node) if value is None else value, inputs, attributes or {}, in_place)

    def _append(self, name, op, value, inputs=(), attributes=None, in_place=False):
        shape, dtype, grad, device = _described(value)
        self.nodes.append(Node(name, op, tuple(inputs), shape, dtype, attributes or {}, in_place, grad,
                               device if self.devices else ""))

    def _flat(self, values):
        """Inputs of a node: names and numbers, in order; what is neither is nothing that the matcher reads."""
        found = []
        for value in values:
            if isinstance(value, torch.fx.Node):
                found.append(value.name)
            elif value is None or isinstance(value, (int, float)) and not isinstance(value, bool):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                found += self._flat(value)
            elif isinstance(value, dict):
                found += self._flat(value.values())
            elif isinstance(value, slice):
                found += self._flat((value.start, value.stop, value.step))
        return found

    def _call(self, node, args, kwargs):
        op, in_place = operations.canonical(_spelling(node.target))
        schema = getattr(node.target, "_schema", None)
        in_place = in_place or bool(schema is not None and getattr(schema, "is_mutable", False))
        kwargs = dict(kwargs)
        out = kwargs.pop("out", None)
        inputs, attributes = operations.sort_arguments(op, args, kwargs)
        inputs = self._flat(inputs)
        if op not in operations.SIGNATURES:
            inputs += [value for value in self._flat(attributes.values()) if isinstance(value, str)]
        in_place = in_place or attributes.get("inplace") is True
        if out is not None:  # it is what changes
            inputs, in_place = self._flat([out]) + inputs, True
        plain = {key: _plain(value) for key, value in attributes.items() if not isinstance(value, torch.fx.Node)}
        self._add(node, op, inputs, plain, in_place)

    def _parameter(self, target, name):
        """The node of a module's parameter, added when it is first met."""
        value = getattr(self.module.get_submodule(target), name)
        if value is None:
            return None
        key = f"{target}.{name}"
        if key not in self.parameters:
            self.parameters[key] = key
            self._append(key, "parameter", value)
        return key

    def _module(self, node, module):
        op, _ = operations.canonical(type(module).__name__)
        known = type(module).__module__.startswith("torch.nn.modules.")
        inputs, attributes = self._flat(node.args) + self._flat(node.kwargs.values()), {}
        if known and op in ("linear", "layer_norm", "rms_norm"):
            names = ("weight",) if op == "rms_norm" else ("weight", "bias")
            inputs += [self._parameter(node.target, name) for name in names]
        if known and op in ("layer_norm", "rms_norm"):
            attributes = {"normalized_shape": list(module.normalized_shape), "eps": module.eps}
        if known and op == "gelu":
            attributes = {"approximate": module.approximate}
        if known and op in ("dropout", "alpha_dropout"):
            attributes = {"p": module.p, "training": module.training}
        in_place = getattr(module, "inplace", False) is True
        self._add(node, op if known else type(module).__name__, inputs, attributes, in_place)


def graph_of(module, name="graph", grad=None, devices=True):
    """The neutral graph of a torch.fx.GraphModule.

    `grad`: whether a backward pass may follow; now, if not said. `devices`: whether it matters where it is.
    """
    nodes = _Reader(module, devices).read()
    if grad is None:  # a graph that switches it may need it anywhere
        switches = any(part in node.op for node in nodes for part in operations.SWITCHES)
        grad = torch.is_grad_enabled() or switches
    return Graph(nodes, name, grad)


def shape_of(node):
    """Of an fx node; None if it is unknown, or not one tensor."""
    return _described(value_of(node))[0]
