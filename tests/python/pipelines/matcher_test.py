"""Chains of graphs: exactly those expected of the corpus, and of random graphs that they are what they say."""
import dataclasses
import os
import random
import unittest

import random_graphs
import reference
from tally.pipelines import chains, graph, operations, rules, spec, steps

HERE = os.path.dirname(os.path.abspath(__file__))
ANYTHING = rules.Limits(least_in=1, most_in=64, in_step=1, least_out=1, most_out=64, out_step=1, roof=64, least_rows=1)
SEEDS = int(os.environ.get("TALLY_TEST_SEEDS", "400"))

ROOF = "from 512 on both sides the library is at its roof"
GIVEN = "it is what the model gives"
ONE = "one layer: there is nothing between layers to keep from the GPU's memory"
# Of each file: (widths, extras of layers, why it ends, why it is refused). Extras: layer, then what is there besides relu.
RELU = "relu"
CORPUS = {
    "nerf": [
        ("64-256-256-256-256-256-256-256-256", {4: "relu first"}, "its value is taken more than once: by addmm", ""),
        ("256-1", {}, None, "it gives 1 columns; the kernel gives multiples of 16 from 16 to 256"),
        ("256-256", {0: ""}, "it is joined to something that is not the chain's input", ONE),
        ("283-128", {}, None, "283 columns of input; the kernel takes multiples of 8 from 8 to 512"),
        ("128-3", {}, None, "it gives 3 columns; the kernel gives multiples of 16 from 16 to 256")],
    "meshgraphnet": [
        ("384-128-128-128", {2: "layer"}, "its value is taken more than once: by add, index_add", ""),
        ("256-128-128-128", {2: "layer"}, "something is added that is not the chain's input", "")],
    "dlrm": [
        ("13-512", {}, None, "13 columns of input; the kernel takes multiples of 8 from 8 to 512"),
        ("512-256-128", {}, "its value is taken more than once: by cat, unsqueeze", ""),
        ("857-1024", {}, None, f"857 and 1024 columns: {ROOF}"),
        ("1024-1024", {}, None, f"1024 and 1024 columns: {ROOF}"),
        ("1024-512", {}, None, "1024 columns of input; the kernel takes multiples of 8 from 8 to 512"),
        ("512-256", {}, "the next layer is none for the kernel: it gives 1 columns; the kernel gives multiples of 16 from 16 to 256", ONE),
        ("256-1", {}, None, "it gives 1 columns; the kernel gives multiples of 16 from 16 to 256")],
    "policy": [
        ("128-256-256-128", {0: "silu", 1: "silu", 2: "added"}, "tanh follows, which the kernel does not do", ""),
        ("128-12", {}, None, "it gives 12 columns; the kernel gives multiples of 16 from 16 to 256")],
    "eight": [
        ("128-128-128-128-128-128-128-128-128", {1: "gelu_tanh", 3: "gelu", 5: "gelu_tanh", 7: ""}, GIVEN, "")],
    "transformer": [(widths, {}, None, f"{widths.replace('-', ' and ')} columns: {ROOF}") for widths in
                    ("1024-1024", "1024-1024", "1024-1024", "1024-1024", "1024-4096", "4096-1024")],
    "decode": [(widths, {}, None, f"{widths.replace('-', ' and ')} columns: {ROOF}") for widths in
               ("4096-11008", "4096-11008", "11008-4096")] +
              [("64-64-64", {0: "silu", 1: ""}, GIVEN, "1 row fills less than a quarter of the GPU; from 2049 on")],
    "views": [("64-128-64", {0: "silu rms", 1: "last added"}, GIVEN, "")],
    "training": [("128-128-128", {1: ""}, GIVEN, "")],
    "frozen": [("128-128-128", {1: ""}, GIVEN, "")],
    "fp32": [("128-128-128", {1: ""}, GIVEN, "fp32: the kernels take bf16 and fp16, and do not round to TF32")],
    "dropout": [("128-128", {0: ""}, "dropout in training follows", ONE), ("128-128", {0: ""}, GIVEN, ONE)],
    "evaluated": [("128-128-128", {1: ""}, GIVEN, "")],
    "autocast": [("128-128-128", {0: "", 1: ""}, GIVEN, "bf16 and fp32 together, as under autocast: the kernel reads weights as they "
                  "are; convert the model instead, with .bfloat16() or .half()")],
}


def extras(layer):
    return " ".join(filter(None, (layer.activation, layer.norm, layer.concat, "added" if layer.residual else "")))


class Corpus(unittest.TestCase):
    maxDiff = None

    def test_exactly_the_chains_and_reasons_expected(self):
        self.assertEqual(sorted(CORPUS), sorted(name[:-5] for name in os.listdir(os.path.join(HERE, "graphs"))))
        for name, expected in CORPUS.items():
            with self.subTest(name):
                found = chains.find(graph.read(os.path.join(HERE, "graphs", name + ".json")))
                self.assertEqual([("-".join(map(str, c.widths())), c.refused) for c in found], [(w, refused) for w, _, _, refused in expected])
                for chain, (_, special, ends, _) in zip(found, expected):
                    if ends is not None:
                        self.assertEqual(chain.ends, ends)
                        self.assertEqual([extras(layer) for layer in chain.layers],
                                         [special.get(i, RELU) for i in range(len(chain.layers))])

    def test_operands_are_the_models(self):
        (chain,) = chains.find(graph.read(os.path.join(HERE, "graphs", "views.json")))
        first, second = chain.layers
        self.assertEqual((chain.input, chain.output, chain.rows), ("rows", "residual", 8192))
        self.assertEqual((first.weights, first.bias, first.scale, first.shift, first.epsilon),
                         ("layer0.weight", "layer0.bias", "scale", None, 1e-6))
        self.assertEqual((second.weights, second.columns, second.out), ("layer1.weight", 192, 64))

    def test_a_file_says_what_the_graph_says(self):
        for name in CORPUS:
            first = graph.read(os.path.join(HERE, "graphs", name + ".json"))
            again = graph.from_json(graph.to_json(first))
            self.assertEqual((list(again.nodes.values()), again.grad, again.name), (list(first.nodes.values()), first.grad, first.name))


class WideFirst(unittest.TestCase):
    """A first layer of more columns than any other may give."""

    def chains(self, *widths, norm=False, joined=False, added=False):
        shape = (4096, widths[0])
        nodes, hidden = [graph.Node("x", "input", (), shape, "bf16")], "x"
        for i, out in enumerate(widths[1:]):
            columns = nodes[-1].shape[1]
            nodes += [graph.Node(f"w{i}", "parameter", (), (out, columns), "bf16"),
                      graph.Node(f"layer{i}", "linear", (hidden, f"w{i}"), (4096, out), "bf16")]
            if i == 0 and norm:
                nodes.append(graph.Node("normed", "layer_norm", ("layer0",), (4096, out), "bf16", {"normalized_shape": [out], "eps": 1e-5}))
            if i == 0 and added:
                nodes.append(graph.Node("sum", "add", ("layer0", "x"), (4096, out), "bf16"))
            if i == 0 and joined:
                nodes.append(graph.Node("both", "cat", ("x", "layer0"), (4096, out + widths[0]), "bf16", {"dim": -1}))
            hidden = nodes[-1].name
        nodes.append(graph.Node("output", "output", (hidden,)))
        return [("-".join(map(str, chain.widths())), chain.ends, chain.refused) for chain in chains.find(graph.Graph(nodes))]

    def test_is_taken_with_what_follows(self):
        for wide in (384, 512, 1024):
            self.assertEqual(self.chains(16, wide, 256, 64), [(f"16-{wide}-256-64", GIVEN, "")])

    def test_only_whole_chunks_and_only_in_front(self):
        kernel = "the kernel gives multiples of 16 from 16 to 256, its first layer of 128 to 1024"
        for wide in (272, 448, 1152):
            self.assertEqual(self.chains(16, wide, 256, 64)[0][2], f"it gives {wide} columns; {kernel}")
        self.assertEqual(self.chains(16, 256, 512, 64)[0], ("16-256", f"the next layer is none for the kernel: it gives 512 columns; {kernel}", ONE))

    def test_nothing_that_needs_all_of_its_columns_at_once(self):
        chunks = "a first layer that is computed in chunks"
        for found, ends in ((self.chains(16, 512, 256, norm=True), f"a norm comes behind {chunks}"),
                            (self.chains(16, 512, 256, joined=True), f"the chain's input is joined to {chunks}"),
                            (self.chains(512, 512, 256, added=True), f"the input is added to {chunks}")):
            self.assertEqual(found[0][1:], (ends, ONE))


class Small(unittest.TestCase):
    """Graphs of two layers with one thing about them."""

    def chains(self, *between, second="layer1", first=(), last=(), x="x", users=()):
        nodes = [graph.Node("x", "input", (), (4, 16), "bf16"), graph.Node("other", "input", (), (4, 16), "bf16"),
                 *[graph.Node(f"w{i}", "parameter", (), (16, 16), "bf16") for i in range(2)],
                 *first, graph.Node("layer0", "linear", (x, "w0"), (4, 16), "bf16"), *between,
                 graph.Node(second, "linear", (between[-1].name if between else "layer0", "w1"), (4, 16), "bf16"), *last,
                 graph.Node("output", "output", ((last[-1].name if last else second), *users))]
        return chains.find(graph.Graph(nodes), dataclasses.replace(ANYTHING))

    @staticmethod
    def node(name, op, *inputs, in_place=False, shape=(4, 16), **attributes):
        return graph.Node(name, op, inputs, shape, "bf16", attributes, in_place)

    def test_in_place_on_its_own_value_is_like_any_other(self):
        (chain,) = self.chains(self.node("act", "relu", "layer0", in_place=True))
        self.assertEqual((len(chain.layers), chain.layers[0].activation, chain.refused), (2, "relu", ""))

    def test_a_chain_does_not_read_what_is_changed_meanwhile(self):
        for changed in ("x", "w1"):
            found = self.chains(self.node("act", "relu", "layer0"), last=(self.node("changing", "add", changed, 1, in_place=True), self.node("y", "add", "layer1", 1)))
            self.assertEqual(found[0].refused, f"'{changed}', which it reads, is changed in place by add")

    def test_a_view_of_what_it_reads_is_changed(self):
        found = self.chains(self.node("act", "relu", "layer0"), last=(
            self.node("part", "select", "x", 0), self.node("changing", "zero", "part", in_place=True), self.node("y", "add", "layer1", 1)))
        self.assertEqual(found[0].refused, "'x', which it reads, is changed in place by zero")

    def test_a_value_between_layers_that_is_changed_ends_it(self):
        found = self.chains(self.node("seen", "view", "layer0"), self.node("changed", "mul", "seen", 2, in_place=True))
        self.assertEqual([len(chain.layers) for chain in found], [1, 1])

    def test_memory_of_its_own_that_others_see_is_changed(self):
        found = self.chains(first=(self.node("h", "tanh", "other"),), x="h", last=(self.node("changing", "add", "h", 1, in_place=True), self.node("y", "add", "layer1", 1)))
        self.assertEqual(found[0].refused, "'h', which it reads, is changed in place by add")

    def test_a_conversion_behind_it_stays_behind_it(self):
        (chain,) = self.chains(last=(graph.Node("exact", "to", ("layer1",), (4, 16), "fp32"), graph.Node("y", "relu", ("exact",), (4, 16), "fp32")))
        self.assertEqual((chain.output, chain.ends, chain.refused), ("layer1", "to follows, which the kernel does not do", ""))

    def test_the_faster_is_kept(self):
        self.assertEqual(rules.of_times({"us": {"tally": 9.9, "eager": 20.0, "inductor": 10.0}}), "")
        self.assertEqual(rules.of_times({"us": {"tally": 10.1, "eager": 20.0, "inductor": 10.0}}), "measured: 10.1 us, and inductor takes 10.0 us")
        self.assertEqual(rules.of_times({"refused": "too wide"}), "too wide")

    def test_the_models_output_is_never_inside(self):
        found = self.chains(self.node("act", "relu", "layer0"), users=("act",))
        self.assertEqual([chain.output for chain in found], ["act", "layer1"])

    def test_a_factor_is_no_residual(self):
        found = self.chains(last=(self.node("y", "add", "layer1", "x", alpha=2),))
        self.assertEqual((found[0].output, found[0].ends), ("layer1", "the input is added twice, or times a factor"))

    def test_order_within_a_layer(self):
        found = self.chains(self.node("normed", "layer_norm", "layer0", normalized_shape=[16], eps=1e-5), self.node("act", "relu", "normed"))
        self.assertEqual([(chain.output, chain.ends) for chain in found][0], ("normed", "relu comes behind a norm"))

    def test_a_norm_over_two_dimensions_or_without_epsilon_is_left(self):
        for words, attributes in (("over more", {"normalized_shape": [4, 16], "eps": 1e-5}), ("no epsilon", {"normalized_shape": [16]})):
            found = self.chains(self.node("normed", "rms_norm", "layer0", **attributes))
            self.assertIn(words, found[0].ends)

    def test_joined_rows_are_no_joined_columns(self):
        found = self.chains(self.node("joined", "cat", "layer0", "x", shape=(8, 16), dim=0), self.node("back", "slice", "joined"))
        self.assertEqual(found[0].ends, "it is joined to something that is not the chain's input")

    def test_weights_that_are_computed_or_lie_otherwise(self):
        nodes = [graph.Node("x", "input", (), (4, 16), "bf16"), graph.Node("w", "parameter", (), (16, 16), "bf16"),
                 graph.Node("double", "mul", ("w", 2), (16, 16), "bf16"), graph.Node("a", "linear", ("x", "double"), (4, 16), "bf16"),
                 graph.Node("b", "mm", ("a", "w"), (4, 16), "bf16"), graph.Node("output", "output", ("b",))]
        found = chains.find(graph.Graph(nodes), ANYTHING)
        self.assertEqual([chain.refused for chain in found], ["its weights are computed by mul",
                         "its weights lie as [in][out]; the kernel reads [out][in], as torch.nn.Linear has them"])

    def test_rows_that_are_not_known_are_not_guessed(self):
        nodes = [graph.Node("x", "input", (), (None, 16), "bf16"), graph.Node("w", "parameter", (), (16, 16), "bf16"),
                 graph.Node("a", "linear", ("x", "w"), (None, 16), "bf16"), graph.Node("b", "linear", ("a", "w"), (None, 16), "bf16"),
                 graph.Node("output", "output", ("b",))]
        (chain,) = chains.find(graph.Graph(nodes), ANYTHING)
        self.assertIn("dynamic=False", chain.refused)
        self.assertEqual(chain.operands(), ["w"])

    def test_a_chain_as_a_string(self):
        (chain,) = self.chains(self.node("act", "gelu", "layer0", approximate="tanh"))
        text = spec.of(chain)
        self.assertEqual(spec.of(spec.parse(text)), text)
        self.assertEqual(spec.parse(text).operands(), ["0", "1"])


class Training(unittest.TestCase):
    """Graphs that a backward pass may follow: three layers with one thing about them."""

    def chains(self, between=("relu", "relu", ""), wants_dx=True, columns=32, first_out=32, more=()):
        def node(name, op, inputs, out, **attributes):
            return graph.Node(name, op, inputs, (4096, out), "bf16", attributes)
        nodes, hidden, out = [graph.Node("x", "input", (), (4096, columns), "bf16", requires_grad=wants_dx)], "x", columns
        for i, kind in enumerate(between):
            taken, out = out, first_out if i == 0 else 32
            nodes += [graph.Node(f"w{i}", "parameter", (), (out, taken), "bf16", requires_grad=True),
                      node(f"layer{i}", "linear", (hidden, f"w{i}"), out)]
            hidden = f"layer{i}"
            if kind:
                attributes = {"normalized_shape": [out], "eps": 1e-5} if kind == "layer_norm" else {}
                nodes.append(node(f"{kind}{i}", kind, (hidden, "x") if kind == "add" else (hidden,), out, **attributes))
                hidden = nodes[-1].name
        nodes += [*more, graph.Node("output", "output", (hidden,))]
        return chains.find(graph.Graph(nodes, grad=True))

    def test_linear_layers_and_relu_are_taken_with_what_is_wanted(self):
        for wants_dx in (False, True):
            (chain,) = self.chains(wants_dx=wants_dx)
            self.assertEqual((chain.trains, chain.wants_dx, chain.with_dx(), chain.refused), (True, wants_dx, wants_dx, ""))
            self.assertEqual([layer.activation for layer in chain.layers], ["relu", "relu", ""])
            again = spec.parse(spec.of(chain))
            self.assertEqual((again.trains, again.wants_dx, spec.of(again)), (True, wants_dx, spec.of(chain)))

    def test_a_wide_input_has_its_gradient_from_the_framework(self):
        for columns, with_dx in ((256, True), (384, False), (40, False)):
            (chain,) = self.chains(columns=columns)
            self.assertEqual((chain.refused, chain.wants_dx, chain.with_dx()), ("", True, with_dx))

    def test_the_last_activation_stays_outside(self):
        (chain,) = self.chains(("relu", "", "relu"))
        self.assertEqual((chain.output, [layer.activation for layer in chain.layers]), ("layer2", ["relu", "", ""]))
        self.assertIn("an activation behind the last layer is PyTorch's", chain.ends)
        self.assertEqual(chain.nodes, ["layer0", "relu0", "layer1", "layer2"])

    def test_what_has_no_backward_pass_ends_it(self):
        for kind, words in (("silu", "silu follows"), ("layer_norm", "a norm follows"), ("add", "the chain's input is added"),
                            ("detach", "it is detached"), ("tanh", "tanh follows")):
            found = self.chains(("relu", kind, "relu"))
            self.assertEqual([len(chain.layers) for chain in found], [2, 1])
            self.assertIn(words, found[0].ends)
            self.assertEqual((found[0].output, found[0].refused, found[1].refused), ("layer1", "", ONE))

    def test_a_joined_input_ends_it(self):
        nodes = [graph.Node("x", "input", (), (4096, 32), "bf16"),
                 *[graph.Node(f"w{i}", "parameter", (), (32, 32 * (1 + i)), "bf16", requires_grad=True) for i in (0, 1)],
                 graph.Node("layer0", "linear", ("x", "w0"), (4096, 32), "bf16"),
                 graph.Node("both", "cat", ("x", "layer0"), (4096, 64), "bf16", {"dim": -1}),
                 graph.Node("layer1", "linear", ("both", "w1"), (4096, 32), "bf16"), graph.Node("output", "output", ("layer1",))]
        found = chains.find(graph.Graph(nodes, grad=True))
        self.assertEqual([chain.ends for chain in found], ["the chain's input is joined to it, which has no backward pass", GIVEN])

    def test_a_wide_first_layer_is_none(self):
        found = self.chains(first_out=512)
        self.assertEqual([chain.widths() for chain in found], [[32, 512], [512, 32, 32]])
        self.assertEqual([bool(chain.refused) for chain in found], [True, False])

    def test_gradients_that_are_switched_are_not_guessed(self):
        (chain,) = self.chains(more=(graph.Node("off", "_set_grad_enabled", (0,)),))
        self.assertIn("switches gradients", chain.refused)

    def test_what_needs_no_gradient_is_as_before(self):
        nodes = [graph.Node("x", "input", (), (4096, 32), "bf16"), graph.Node("w", "parameter", (), (32, 32), "bf16"),
                 graph.Node("a", "linear", ("x", "w"), (4096, 32), "bf16"), graph.Node("act", "silu", ("a",), (4096, 32), "bf16"),
                 graph.Node("b", "linear", ("act", "w"), (4096, 32), "bf16"), graph.Node("output", "output", ("b",))]
        (chain,) = chains.find(graph.Graph(nodes, grad=True))
        self.assertEqual((chain.trains, len(chain.layers), chain.refused), (False, 2, ""))
        self.assertNotIn("trains", spec.of(chain))


class Random(unittest.TestCase):
    def test_chains_are_linear_and_compute_the_same(self):
        layers = taken = 0
        for seed in range(SEEDS):
            made, given = random_graphs.make(random.Random(seed))
            if seed % 4 == 0:
                made = graph.Graph([dataclasses.replace(node, requires_grad=True) for node in made.nodes.values()], grad=True)
            found = chains.find(made, ANYTHING)
            with self.subTest(seed=seed):
                self.check_shape(made, found)
                usable = [chain for chain in found if not chain.refused]
                for a, b in zip(reference.run(made, given), reference.run(made, given, usable)):
                    self.assertEqual(a[0], b[0])
                    for x, y in zip(a[1], b[1]):
                        self.assertAlmostEqual(x, y, delta=1e-9 * max(1, abs(x)))
                taken += len(usable)
                layers += sum(len(chain.layers) for chain in usable)
        self.assertGreater(taken, SEEDS / 4)  # they are worth something
        self.assertGreater(layers, 2.2 * taken)

    def check_shape(self, made, found):
        """Each linear layer is in one chain; nothing but its input and operands leads in, nothing but its last value out."""
        self.assertEqual(sorted(name for chain in found for name in chain.nodes if steps.is_linear(made, made[name])),
                         sorted(node.name for node in made.nodes.values() if node.op in operations.LINEARS))
        for chain in found:
            self.assertEqual(chain.trains, made.grad)
            if chain.trains and not chain.refused:
                self.assertEqual({extras(layer) for layer in chain.layers} - {"", "relu"}, set())
                self.assertEqual(extras(chain.layers[-1]), "")
            inside = set(chain.nodes)
            self.assertEqual(len(inside), len(chain.nodes))
            for name in chain.nodes:
                if name != chain.output:
                    self.assertLessEqual({user.name for user in made.users[name]}, inside)
                self.assertTrue(chain.ends)


if __name__ == "__main__":
    unittest.main()
