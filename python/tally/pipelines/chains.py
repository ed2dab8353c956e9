"""Finds what may run as one kernel in a graph. Pure: a graph in, chains out. Needs no PyTorch.

A chain is linear layers, each fed by the one before, and between them what the kernel can do: bias, activation, norm,
the chain's input added or joined to the hidden columns. Where a backward pass may follow, a chain `trains`, and holds
only what has one: linear layers, and ReLU between them. Each linear layer of the graph is in one chain. A chain goes on
as far as it can, and has a sentence for why it ends; one that is not to be taken has a sentence for that, too.
"""
import dataclasses

from tally.pipelines import operations, rules, shapes, steps, values


@dataclasses.dataclass
class Layer:
    node: str  # the linear operation
    columns: int  # that its weights take
    out: int
    weights: str  # [out][columns]
    bias: str = None
    activation: str = ""  # relu, gelu, gelu_tanh, silu
    norm: str = ""  # layer, rms
    scale: str = None
    shift: str = None
    epsilon: float = 0.0
    concat: str = ""  # first, last: where the chain's input stands in what it takes
    residual: bool = False  # the chain's input is added


@dataclasses.dataclass
class Chain:
    input: str
    output: str = ""
    layers: list = dataclasses.field(default_factory=list)
    nodes: list = dataclasses.field(default_factory=list)  # names, in order; the last is `output`
    rows: int = None
    dtype: str = ""
    ends: str = ""  # why it does not go on
    refused: str = ""  # why it is not taken; "" if it may be
    trains: bool = False  # a backward pass may follow
    wants_dx: bool = False  # then also its input's gradient is wanted

    def operands(self):
        """Names of what it reads besides its input, each once."""
        names = [name for layer in self.layers for name in (layer.weights, layer.bias, layer.scale, layer.shift)]
        return list(dict.fromkeys(name for name in names if name is not None))

    def widths(self):
        return [self.layers[0].columns] + [layer.out for layer in self.layers]

    def with_dx(self):
        """The kernel gives its input's gradient, too; else that is a product with the first layer's weights."""
        return self.wants_dx and rules.has_dx(self.layers[0].columns)


def find(graph, limits=rules.Limits()):
    """All chains of a graph, refused ones included, in the order in which they start."""
    changes = values.Changes(graph)
    taken, found = set(), []
    for node in graph.nodes.values():
        if node.name in taken or not steps.is_linear(graph, node):
            continue
        chain = _Walk(graph, limits, changes, node, trains=False).chain
        if rules.needs_gradient(graph, chain):
            chain = _Walk(graph, limits, changes, node, trains=True).chain
        taken.update(chain.nodes)
        found.append(chain)
    return found


class _Walk:
    """Builds one chain from its first linear layer on."""

    def __init__(self, graph, limits, changes, first, trains):
        self.graph, self.limits, self.changes = graph, limits, changes
        self.chain = Chain(steps.operand(first, "input"), trains=trains)
        self.chain.wants_dx = trains and graph[self.chain.input].requires_grad
        self.before_activation = 0  # nodes, of the last layer
        self.input_root = values.root(graph, self.chain.input)
        self.chain.refused = self._add_layer(first, "") or ""
        if self.chain.refused:  # no layer for the kernel: alone, so that what follows may start a chain
            if not self.chain.layers:
                weights = steps.weights_of(graph, first) or steps.operand(first, "weight")
                self.chain.layers.append(Layer(first.name, shapes.columns(graph[self.chain.input].shape),
                                               shapes.columns(first.shape), weights, steps.operand(first, "bias")))
            self._keep([first])
            self.chain.ends = "it is not taken"
        else:
            self._keep([first])
            while not self.chain.ends:
                self.chain.ends = self._extend() or ""
            if trains and self.chain.layers[-1].activation:
                self._give_back_activation()
        self._judge()

    def _keep(self, nodes):
        self.chain.nodes += [node.name for node in nodes]
        self.chain.output = self.chain.nodes[-1]

    def _give_back_activation(self):
        """The framework knows best what to do with it together with what follows, there and back."""
        self.chain.layers[-1].activation = ""
        del self.chain.nodes[self.before_activation:]
        self.chain.output = self.chain.nodes[-1]
        self.chain.ends = "an activation behind the last layer is PyTorch's, where a backward pass may follow"

    def _extend(self):
        """Takes one more step; a sentence if there is none."""
        passed, end = steps.follow(self.graph, self.chain.output)
        if isinstance(end, str):
            return end
        if self.chain.trains and any(node.op == "detach" for node in passed):
            return "it is detached: no gradient passes"
        changing = self.changes.of(self.chain.output)
        if changing is not None:
            return f"its value is changed in place by {changing.op}"
        hidden = passed[-1].name if passed else self.chain.output
        layer = self.chain.layers[-1]
        for step in (self._next_layer, self._bias, self._activation, self._norm, self._residual):
            nodes = step(hidden, end, layer)
            if isinstance(nodes, str):
                return nodes
            if nodes:
                self._keep(passed + nodes)
                return None
        return steps.why_not(end[0])

    def _next_layer(self, hidden, users, layer):
        node, joined, concat = users[0], [], ""
        if node.op == "cat":
            concat = steps.joins(self.graph, node, hidden, self.input_root)
            if concat and self.chain.trains:
                return "the chain's input is joined to it, which has no backward pass"
            if concat and rules.is_wide(self.limits, layer.out):
                return "the chain's input is joined to a first layer that is computed in chunks"
            if not concat:
                return "it is joined to something that is not the chain's input"
            joined, end = steps.follow(self.graph, node.name)
            joined = [node] + joined
            if isinstance(end, str) or not steps.is_linear(self.graph, end[0]):
                return "it is joined to the chain's input, and no linear layer follows"
            node, hidden = end[0], joined[-1].name
        if not steps.is_linear(self.graph, node):
            return None
        if steps.operand(node, "input") != hidden or node.names().count(hidden) != 1:
            return f"it is no input of {node.op}, but another operand"
        if len(self.chain.layers) == self.limits.most_layers:
            return f"{self.limits.most_layers} layers are the most"
        wrong = self._add_layer(node, concat)
        return f"the next layer is none for the kernel: {wrong}" if wrong else joined + [node]

    def _add_layer(self, node, concat):
        """A sentence, or None: it was added."""
        weights = steps.weights_of(self.graph, node)
        if weights is None:
            return "its weights lie as [in][out]; the kernel reads [out][in], as torch.nn.Linear has them"
        source = self.graph[values.root(self.graph, weights)]
        if source.op not in ("input", "parameter"):
            return f"its weights are computed by {source.op}"
        bias = steps.operand(node, "bias")
        if node.shape is None or self.graph[weights].shape is None:
            return "its widths are not known before it runs"
        out, columns = self.graph[weights].shape
        if bias is not None and self.graph[bias].shape != (out,):
            return "its bias is not one value a column"
        if node.op == "addmm" and (node.attributes.get("alpha", 1) != 1 or node.attributes.get("beta", 1) != 1):
            return "addmm with factors"
        chain_input = self.chain.layers[0].columns if self.chain.layers else columns
        if self.chain.layers and columns != self.chain.layers[-1].out + (chain_input if concat else 0):
            return "its weights are not for what is joined"
        may_be_wide = not self.chain.layers and not self.chain.trains
        wrong = rules.of_layer(self.limits, columns, out, chain_input or 0, may_be_wide)
        if wrong is None:
            self.chain.layers.append(Layer(node.name, columns, out, weights, bias, concat=concat))
        return wrong

    def _bias(self, hidden, users, layer):
        node = users[0]
        if node.op != "add" or layer.bias or layer.activation or layer.norm or layer.residual:
            return None
        other = steps.other(node, hidden)
        if other is None or self.graph[other].shape != (layer.out,) or node.attributes.get("alpha", 1) != 1:
            return None
        layer.bias = other
        return [node]

    def _activation(self, hidden, users, layer):
        kind = steps.activation(users[0], hidden)
        if not kind:
            return None
        if layer.activation or layer.norm or layer.residual:
            before = "the residual" if layer.residual else "a norm" if layer.norm else layer.activation
            return f"{kind} comes behind {before}"
        if self.chain.trains and kind != "relu":
            return f"{kind} follows, which has no backward pass"
        layer.activation, self.before_activation = kind, len(self.chain.nodes)
        return users[:1]

    def _norm(self, hidden, users, layer):
        norm = steps.norm(self.graph, hidden, users, layer.out)
        if norm is None or isinstance(norm, str):
            return norm
        if self.chain.trains:
            return "a norm follows, which has no backward pass"
        if rules.is_wide(self.limits, layer.out):
            return "a norm comes behind a first layer that is computed in chunks"
        if layer.norm or layer.residual:
            return f"a norm comes behind {'the residual' if layer.residual else 'a norm'}"
        layer.norm, layer.scale, layer.shift, layer.epsilon = norm.kind, norm.scale, norm.shift, norm.epsilon
        return norm.nodes

    def _residual(self, hidden, users, layer):
        node = users[0]
        if node.op != "add":
            return None
        other = steps.other(node, hidden)
        if other is None or values.root(self.graph, other) != self.input_root:
            return "something is added that is not the chain's input"
        if self.chain.trains:
            return "the chain's input is added, which has no backward pass"
        if rules.is_wide(self.limits, layer.out):
            return "the input is added to a first layer that is computed in chunks"
        if layer.residual or node.attributes.get("alpha", 1) != 1:
            return "the input is added twice, or times a factor"
        if layer.out != self.chain.layers[0].columns or self.graph[other].shape != self.graph[hidden].shape:
            return "the chain's input, which is added, has another shape"
        layer.residual = True
        return [node]

    def _judge(self):
        chain, graph = self.chain, self.graph
        read = [graph[name] for name in [chain.input] + chain.operands()]
        chain.rows = shapes.rows(graph[chain.layers[0].node].shape) if graph[chain.layers[0].node].shape else None
        chain.dtype = graph[chain.layers[0].node].dtype
        for node in read:
            changing = self.changes.of(node.name)
            if changing is not None and not chain.refused:
                chain.refused = f"'{node.name}', which it reads, is changed in place by {changing.op}"
        if not chain.refused:
            # What is inside of a norm written out may be fp32.
            computed = [graph[name] for name in [layer.node for layer in chain.layers] + [chain.output]]
            chain.refused = rules.of_whole(self.limits, graph, chain, read, computed) or ""
