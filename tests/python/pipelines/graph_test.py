"""Files that are no graphs: each is refused with a sentence that says what is wrong."""
import json
import os
import tempfile
import unittest

from tally.pipelines import graph

X = {"name": "x", "op": "input", "shape": [4, 16], "dtype": "bf16"}
W = {"name": "w", "op": "parameter", "shape": [8, 16], "dtype": "bf16"}
OUTPUT = {"name": "output", "op": "output", "inputs": ["y"]}


def linear(**fields):
    return {"name": "y", "op": "linear", "inputs": ["x", "w"], "shape": [4, 8], "dtype": "bf16", **fields}


def text(*nodes, **fields):
    return json.dumps({"tally-graph": 1, "nodes": list(nodes), **fields})


class Files(unittest.TestCase):
    def refused(self, words, content):
        with self.assertRaisesRegex(graph.GraphError, words) as caught:
            graph.from_json(content)
        self.assertNotIn("\n", str(caught.exception))

    def test_what_is_right_is_taken(self):
        found = graph.from_json(text(X, W, linear(), OUTPUT))
        self.assertEqual([node.name for node in found.users["y"]], ["output"])

    def test_not_a_graph(self):
        for content in ("", "{", "[1]", "7", "null", "{}", json.dumps({"tally-graph": 2, "nodes": []}), "[" * 200_000):
            self.refused("^not ", content)
        self.refused("'nodes' is not a list", json.dumps({"tally-graph": 1}))
        self.refused("'grad' is not", text(grad=1))
        self.refused("'name' is not", text(name=[]))

    def test_cycles_and_missing_inputs(self):
        self.refused("'y' takes 'gone', which is no node", text(X, W, linear(inputs=["x", "gone"])))
        self.refused("'y' takes 'z', which is not before it: a cycle", text(
            X, W, linear(inputs=["z", "w"]), {"name": "z", "op": "relu", "inputs": ["y"], "shape": [4, 8]}))
        self.refused("'y' takes 'y'", text(X, W, linear(inputs=["y", "w"])))
        self.refused("two nodes are called 'x'", text(X, X))

    def test_shapes_that_cannot_be(self):
        self.refused("for 16 columns, and its input has 12", text({**X, "shape": [4, 12]}, W, linear()))
        self.refused(r"gives \[4, 9\], and its operands make \[4, 8\]", text(X, W, linear(shape=[4, 9])))
        self.refused(r"gives \[4, 8\] and takes \[4, 16\]", text(X, {"name": "y", "op": "aten.relu.default", "inputs": ["x"], "shape": [4, 8]}))
        self.refused("gives 31 where its parts have 32", text(X, {"name": "y", "op": "cat", "inputs": ["x", "x"], "shape": [4, 31], "attributes": {"dim": 1}}))
        self.refused("its input has no dimension", text({**X, "shape": []}, W, linear()))

    def test_fields_that_are_none(self):
        for field, value in (("shape", "4"), ("shape", [-1]), ("shape", [True]), ("shape", [1 << 41]), ("shape", [2] * 17), ("shape", [1.5]),
                             ("dtype", "bf17"), ("op", ""), ("op", 3), ("name", "n" * 501), ("inputs", "x"), ("inputs", [["x"]]),
                             ("attributes", []), ("requires_grad", 1), ("device", 1), ("in_place", "no"), ("colour", "red")):
            self.refused("^node 2: ", text(X, W, linear(**{field: value})))
        self.refused("^node 1: not an object", text(X, 7))

    def test_what_attributes_hold_is_not_believed(self):
        from tally.pipelines import chains
        for attributes in ({"dim": "x"}, {"dim": [1]}, {"dim": 9}, {"normalized_shape": {}}, {"eps": "1"}, {"eps": 5}, {"eps": None}, {"alpha": []},
                           {"approximate": 3}, {"p": "0", "training": 7}, {"dims": 3}, {"index": []}):
            for op in ("cat", "layer_norm", "native_layer_norm", "rms_norm", "gelu", "add", "dropout", "permute", "transpose", "mean", "getitem", "addmm"):
                for inputs in (["y"], ["y", "y"], ["y", 1], ["y", None, "x"], [], [1], ["w", "y"]):
                    try:
                        found = graph.from_json(text(X, W, linear(), {"name": "z", "op": op, "inputs": inputs, "shape": [4, 8], "attributes": attributes}))
                    except graph.GraphError:
                        continue
                    for chain in chains.find(found):
                        self.assertTrue(chain.ends and chain.refused)

    def test_too_large(self):
        self.refused("100001 nodes; 100000 at most", text(*[X] * 100_001))
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "large.json")
            with open(path, "wb") as file:
                file.truncate((64 << 20) + 1)
            with self.assertRaisesRegex(graph.GraphError, "larger than 64 MiB"):
                graph.read(path)
            with open(path, "wb") as file:
                file.write(b"\xff\xfe{}")
            with self.assertRaisesRegex(graph.GraphError, "not text in UTF-8"):
                graph.read(path)
            with self.assertRaisesRegex(graph.GraphError, "cannot read"):
                graph.read(directory)

    def test_long_graphs_take_their_time_once(self):
        from tally.pipelines import chains
        nodes, x = [{**X, "shape": [4, 16]}, {**W, "shape": [16, 16]}], "x"
        for i in range(20_000):
            nodes.append({"name": f"n{i}", "op": "linear" if i % 2 else "view", "inputs": [x, "w"] if i % 2 else [x], "shape": [4, 16], "dtype": "bf16"})
            x = f"n{i}"
        self.assertEqual(sum(len(chain.layers) for chain in chains.find(graph.from_json(text(*nodes)))), 10_000)


if __name__ == "__main__":
    unittest.main()
