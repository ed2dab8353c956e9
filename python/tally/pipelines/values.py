"""What values of a graph are to each other: the same rows under another name, or memory that somebody changes."""
from tally.pipelines import operations, shapes


def is_row_view(graph, node):
    """Whether a node gives the rows that it takes, in their order and with their values."""
    if node.op not in operations.ROW_VIEWS or not node.names() or node.shape is None:
        return False
    if node.op in ("dropout", "alpha_dropout") and not (node.attributes.get("training", True) is False or
                                                        node.attributes.get("p", 0.5) == 0):
        return False
    taken = graph[node.names()[0]]
    if taken.shape is None or node.dtype != taken.dtype or shapes.columns(node.shape) != shapes.columns(taken.shape):
        return False
    if node.shape == taken.shape:
        return None not in node.shape[-1:]
    return shapes.columns(node.shape) is not None and shapes.rows(node.shape) is not None and \
        shapes.rows(node.shape) == shapes.rows(taken.shape)


def root(graph, name):
    """The value that this one is a row view of, or itself."""
    while is_row_view(graph, graph[name]):
        name = graph[name].names()[0]
    return name


class Changes:
    """Which values' memory is changed in place somewhere in the graph: those cannot be read later than they were."""

    def __init__(self, graph):
        self._parent = {name: name for name in graph.nodes}
        changed = []
        for node in graph.nodes.values():
            if self.is_private(graph, node):
                continue
            if node.in_place and node.names():
                changed.append(node)
            if node.in_place or node.op not in operations.FRESH:
                for name in node.names():
                    self._join(node.name, name)
        self._by = {self._class_of(node.names()[0]): node for node in changed}

    @staticmethod
    def is_private(graph, node):
        """In place on memory that nothing else sees: no different from a value of its own."""
        if not node.in_place or not node.names():
            return False
        taken = graph[node.names()[0]]
        while Changes._is_whole(graph, taken):
            if taken.op in operations.FRESH and not taken.in_place:
                return True
            if not taken.in_place or not taken.names():
                return False
            taken = graph[taken.names()[0]]
        return False

    @staticmethod
    def _is_whole(graph, node):
        return len(graph.users[node.name]) == 1 and node.op != "output"

    def of(self, name):
        """The node that changes this value's memory, or None."""
        return self._by.get(self._class_of(name))

    def _class_of(self, name):
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def _join(self, a, b):
        self._parent[self._class_of(a)] = self._class_of(b)
