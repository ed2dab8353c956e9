"""A model's graph in a neutral form: what the matcher reads. Needs no PyTorch.

A node is an operation and the one value that it gives. Nodes are in the order of execution. `input` and `parameter`
give values from outside; the one node `output` takes what the model gives. docs/pipelines.md has the form of a file.
"""
import dataclasses
import json
import os

from tally.pipelines import operations, shapes

FORMAT = 1
MOST_FILE_BYTES = 64 << 20
MOST_NODES = 100_000
_MOST_NAME = 500
_MOST_DIMENSIONS = 16
_MOST_SIZE = 1 << 40
DTYPES = ("bf16", "fp16", "fp32", "fp64", "int", "other")


class GraphError(ValueError):
    """A graph that cannot be: one sentence."""


@dataclasses.dataclass(frozen=True)
class Node:
    name: str
    op: str  # canonical
    inputs: tuple = ()  # names of nodes; numbers; None for an operand that is not there
    shape: tuple = None  # None: unknown, or not one tensor. A dimension that is None: known only when it runs
    dtype: str = "other"
    attributes: dict = dataclasses.field(default_factory=dict)
    in_place: bool = False  # it changes its first input
    requires_grad: bool = False
    device: str = ""  # "" if unknown

    def names(self):
        """Names of the nodes that it takes, as often as it takes them."""
        return [value for value in self.inputs if isinstance(value, str)]


class Graph:
    """Raises GraphError if the nodes are no graph. Not to be changed afterwards."""

    def __init__(self, nodes, name="graph", grad=False):
        self.name = name
        self.grad = grad  # values may be needed for a backward pass
        self.nodes = {}
        self.users = {}  # name -> the nodes that take it, one for each time
        if len(nodes) > MOST_NODES:
            raise GraphError(f"{len(nodes)} nodes; {MOST_NODES} at most")
        names = {node.name for node in nodes}
        for node in nodes:
            if node.name in self.nodes:
                raise GraphError(f"two nodes are called '{node.name}'")
            for taken in node.names():
                if taken not in names:
                    raise GraphError(f"'{node.name}' takes '{taken}', which is no node")
                if taken not in self.nodes:
                    raise GraphError(f"'{node.name}' takes '{taken}', which is not before it: a cycle, or nodes out of "
                                     "order")
                self.users[taken].append(node)
            self.nodes[node.name] = node
            self.users[node.name] = []
            wrong = shapes.mistake(node, self.nodes)
            if wrong:
                raise GraphError(f"'{node.name}' ({node.op}): {wrong}")

    def __getitem__(self, name):
        return self.nodes[name]


def _node(entry, index):
    def fail(what):
        raise GraphError(f"node {index}: {what}")

    if not isinstance(entry, dict):
        fail("not an object")
    unknown = set(entry) - {field.name for field in dataclasses.fields(Node)}
    if unknown:
        fail(f"no such field as '{sorted(unknown)[0]}'")
    for field in ("name", "op"):
        if not isinstance(entry.get(field), str) or not 0 < len(entry[field]) <= _MOST_NAME:
            fail(f"'{field}' is not a string of 1 to {_MOST_NAME} characters")
    inputs = entry.get("inputs", [])
    if not isinstance(inputs, list) or not all(value is None or isinstance(value, (str, int, float))
                                               for value in inputs):
        fail("'inputs' is not a list of names, numbers and null")
    shape = entry.get("shape")
    if shape is not None:
        if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
            fail(f"'shape' is not a list of at most {_MOST_DIMENSIONS} sizes")
        for size in shape:
            if size is not None and (type(size) is not int or not 0 <= size <= _MOST_SIZE):
                fail(f"a size in 'shape' is not a whole number from 0 to {_MOST_SIZE}, or null")
    if entry.get("dtype", "other") not in DTYPES:
        fail(f"'dtype' is none of {', '.join(DTYPES)}")
    if not isinstance(entry.get("attributes", {}), dict):
        fail("'attributes' is not an object")
    for field in ("in_place", "requires_grad"):
        if not isinstance(entry.get(field, False), bool):
            fail(f"'{field}' is not true or false")
    if not isinstance(entry.get("device", ""), str):
        fail("'device' is not a string")
    op, in_place = operations.canonical(entry["op"])
    attributes = entry.get("attributes", {})
    return Node(entry["name"], op, tuple(inputs), None if shape is None else tuple(shape), entry.get("dtype", "other"),
                attributes, in_place or attributes.get("inplace") is True or entry.get("in_place", False),
                entry.get("requires_grad", False), entry.get("device", ""))


def from_json(text):
    """A graph from a file's text. Whatever is wrong with it is a GraphError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("tally-graph") != FORMAT:
        raise GraphError(f"not a graph: \"tally-graph\": {FORMAT} is missing")
    if not isinstance(document.get("nodes"), list):
        raise GraphError("'nodes' is not a list")
    if len(document["nodes"]) > MOST_NODES:
        raise GraphError(f"{len(document['nodes'])} nodes; {MOST_NODES} at most")
    for field, kind in (("name", str), ("grad", bool)):
        if not isinstance(document.get(field, kind()), kind):
            raise GraphError(f"'{field}' is not a {'string' if kind is str else 'true or false'}")
    return Graph([_node(entry, index) for index, entry in enumerate(document["nodes"])], document.get("name", "graph"),
                 document.get("grad", False))


def read(path):
    """A graph from a file."""
    try:
        if os.path.getsize(path) > MOST_FILE_BYTES:
            raise GraphError(f"'{path}' is larger than {MOST_FILE_BYTES >> 20} MiB")
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise GraphError(f"cannot read '{path}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise GraphError(f"'{path}' is not text in UTF-8") from None
    return from_json(text)


def to_json(graph):
    """The text of a graph's file: one node a line."""
    lines = []
    for node in graph.nodes.values():
        entry = {"name": node.name, "op": node.op}
        if node.inputs:
            entry["inputs"] = list(node.inputs)
        if node.shape is not None:
            entry["shape"] = list(node.shape)
        for field, default in (("dtype", "other"), ("attributes", {}), ("in_place", False), ("requires_grad", False),
                               ("device", "")):
            if getattr(node, field) != default:
                entry[field] = getattr(node, field)
        lines.append("  " + json.dumps(entry))
    head = json.dumps({"tally-graph": FORMAT, "name": graph.name, "grad": graph.grad})[:-1] + ', "nodes": [\n'
    return head + ",\n".join(lines) + "\n]}\n"
