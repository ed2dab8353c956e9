"""Random graphs of what chains are made of, with what ends them in between: by a seed."""
from tally.pipelines.graph import Graph, Node

WIDTHS = (2, 3)
ROWS = 4


class Maker:
    def __init__(self, random):
        self.random, self.nodes, self.shapes = random, [], {}

    def add(self, op, inputs=(), shape=None, **attributes):
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(Node(name, op, tuple(inputs), shape, "bf16", attributes))
        self.shapes[name] = shape
        return name

    def linear(self, x):
        out, columns = self.random.choice(WIDTHS), self.shapes[x][-1]
        shape = self.shapes[x][:-1] + (out,)
        weights = self.add("parameter", (), (out, columns))
        kind = self.random.choice(("linear", "addmm", "mm", "linear without bias"))
        if kind.startswith("linear") or len(shape) != 2:
            return self.add("linear", [x, weights] + ([] if "without" in kind else [self.add("parameter", (), (out,))]), shape)
        back = self.add("t", [weights], (columns, out))
        bias = self.add("parameter", (), (out,))
        if kind == "addmm":
            return self.add("addmm", [bias, x, back], shape)
        product = self.add("mm", [x, back], shape)
        return self.add("add", self.shuffled(product, bias), shape)

    def shuffled(self, *names):
        return self.random.sample(names, len(names))

    def norm(self, x):
        columns, shape = self.shapes[x][-1], self.shapes[x]
        kind = self.random.choice(("layer_norm", "rms_norm", "written out", "native_layer_norm"))
        scale = self.add("parameter", (), (columns,))
        if kind == "written out":
            square = self.add("pow", [x, 2], shape) if self.random.random() < 0.5 else self.add("mul", [x, x], shape)
            mean = self.add("mean", [square], shape[:-1] + (1,), dim=-1, keepdim=True)
            root = self.add("rsqrt", [self.add("add", [mean, 1e-3], shape[:-1] + (1,))], shape[:-1] + (1,))
            times = self.add("mul", self.shuffled(x, root), shape)
            return self.add("mul", self.shuffled(times, scale), shape) if self.random.random() < 0.7 else times
        if kind == "rms_norm":
            return self.add("rms_norm", [x, scale], shape, normalized_shape=[columns], eps=1e-3)
        operands = [x, scale, self.add("parameter", (), (columns,))]
        if kind == "layer_norm":
            return self.add("layer_norm", operands, shape, normalized_shape=[columns], eps=1e-3)
        return self.add("getitem", [self.add(kind, operands, None, normalized_shape=[columns], eps=1e-3)], shape, index=0)

    def step(self, values):
        """One more operation on what is there, mostly on the newest value."""
        x = values[-1] if self.random.random() < 0.85 else self.random.choice(values)
        kind = self.random.choices(("linear", "activation", "norm", "add", "cat", "view", "tanh", "dropout"), (8, 5, 2, 4, 4, 2, 1, 1))[0]
        if kind == "linear":
            return self.linear(x)
        if kind == "activation":
            op = self.random.choice(("relu", "silu", "gelu"))
            return self.add(op, [x], self.shapes[x], **({"approximate": self.random.choice(("none", "tanh"))} if op == "gelu" else {}))
        if kind == "norm":
            return self.norm(x)
        if kind in ("add", "cat"):
            fitting = [v for v in values if self.shapes[v][:-1] == self.shapes[x][:-1] and (kind == "cat" or self.shapes[v] == self.shapes[x])]
            other = self.random.choice(fitting[:2] * 4 + fitting)  # mostly the graph's inputs, of which chains are fed
            if kind == "add":
                return self.add("add", self.shuffled(x, other), self.shapes[x])
            if self.shapes[x][-1] + self.shapes[other][-1] > 8:
                return x
            joined = self.add("cat", self.shuffled(x, other), self.shapes[x][:-1] + (self.shapes[x][-1] + self.shapes[other][-1],), dim=-1)
            return self.linear(joined) if self.random.random() < 0.8 else joined
        if kind == "view":
            columns = self.shapes[x][-1]
            return self.add("view", [x], (ROWS, columns) if len(self.shapes[x]) == 3 else (2, ROWS // 2, columns))
        if kind == "dropout":
            return self.add("dropout", [x], self.shapes[x], p=0.5, training=False)
        return self.add("tanh", [x], self.shapes[x])


def make(random):
    """(graph, values of its inputs and parameters)."""
    maker = Maker(random)
    values = [maker.add("input", (), (ROWS, width)) for width in WIDTHS]
    for _ in range(random.randint(1, 25)):
        value = maker.step(values)
        if value not in values:
            values.append(value)
    outputs = [values[-1]] + random.sample(values, random.randint(0, 2))
    maker.nodes.append(Node("output", "output", tuple(outputs)))
    graph = Graph(maker.nodes)
    given = {}
    for node in maker.nodes:
        if node.op in ("input", "parameter"):
            count = 1
            for size in node.shape:
                count *= size
            given[node.name] = node.shape, [random.uniform(-1, 1) for _ in range(count)]
    return graph, given
