"""The reader of torch.fx graphs, and the backend's replacing: with any PyTorch from 1.13 on, on the CPU.

What a GPU and torch.compile itself have to do with it is tried by bench/pipelines/nets.py.
"""
import sys
import types
import unittest
import unittest.mock

try:
    import torch
except ImportError:
    torch = None
else:
    import torch.fx
    from torch.fx.passes.shape_prop import ShapeProp

    from tally.pipelines import backend, chains, fx, operation, plain, rules, spec, training

    ANYTHING = rules.Limits(least_rows=1)


def traced(model, *inputs):
    module = torch.fx.symbolic_trace(model.eval())
    ShapeProp(module).propagate(*inputs)
    for node in module.graph.nodes:  # torch.compile leaves a tensor there
        if "tensor_meta" in node.meta and node.op == "placeholder":
            node.meta["example_value"] = inputs[[n for n in module.graph.nodes if n.op == "placeholder"].index(node)]
    return module


def modules():
    """(name, model, inputs, widths of each chain)."""
    nn, F = torch.nn, torch.nn.functional

    class Functional(nn.Module):
        def __init__(self, function, *shapes):
            super().__init__()
            self.function = function
            self.weights = nn.ParameterList([nn.Parameter(torch.randn(*shape) * 0.3) for shape in shapes])

        def forward(self, x):
            return self.function(x, *self.weights)

    x = torch.randn(6, 32)
    sequence = nn.Sequential(nn.Linear(32, 64), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(64, 64, bias=False), nn.GELU(),
                             nn.Linear(64, 32), nn.LayerNorm(32))
    return [
        ("sequence", sequence, (x,), ["32-64-64-32"]),
        ("three dimensions", sequence, (x.reshape(2, 3, 32),), ["32-64-64-32"]),
        ("residual", Functional(lambda x, a, b, c: F.linear(F.silu(F.linear(x, a, c)), b) + x, (64, 32), (32, 64), (64,)), (x,), ["32-64-32"]),
        ("in place", Functional(lambda x, a, b: F.linear(F.linear(x, a).relu_(), b).add_(x), (64, 32), (32, 64)), (x,), ["32-64-32"]),
        ("skip", Functional(lambda x, a, b: F.linear(torch.cat((F.gelu(F.linear(x, a), approximate="tanh"), x), dim=-1), b), (16, 32), (32, 48)),
         (x,), ["32-16-32"]),
        ("addmm", Functional(lambda x, a, b, c: torch.addmm(c, torch.mm(x, a.t()), b.t()), (16, 32), (16, 16), (16,)), (x,), ["32-16-16"]),
        ("rms", Functional(lambda x, a, b, s: F.linear((lambda h: h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * s)(F.linear(x, a)), b),
                           (16, 32), (32, 16), (16,)), (x,), ["32-16-32"]),
        ("flattened", Functional(lambda x, a, b: F.linear(F.linear(x, a).view(-1, 16), b), (16, 32), (16, 16)), (x.reshape(2, 3, 32),), ["32-16-16"]),
        ("two chains", Functional(lambda x, a, b: F.linear(F.linear(torch.tanh(F.linear(F.linear(x, a), b)), a), b), (16, 32), (32, 16)), (x,),
         ["32-16-32", "32-16-32"]),
        ("one feeds the next", Functional(lambda x, a, b: (lambda h: h + F.linear(F.linear(h, a), b))(F.linear(F.linear(x, a), b)), (16, 32), (32, 16)),
         (x,), ["32-16-32", "32-16-32"]),
    ]


@unittest.skipIf(torch is None, "PyTorch is not here")
class Modules(unittest.TestCase):
    def test_chains_are_found_replaced_and_compute_the_same(self):
        for name, model, inputs, widths in modules():
            with self.subTest(name), torch.no_grad():
                want = model.eval()(*[value.clone() for value in inputs])
                module = traced(model, *inputs)
                found = chains.find(fx.graph_of(module, devices=False), ANYTHING)
                self.assertEqual(["-".join(map(str, chain.widths())) for chain in found], widths)
                self.assertEqual({chain.refused for chain in found}, {"fp32: the kernels take bf16 and fp16, and do not round to TF32"})
                backend.replace(module, found)
                called = [node for node in module.graph.nodes if node.target is torch.ops.tally.chain.default]
                self.assertEqual(len(called), len(widths))
                got = module(*inputs)
                self.assertEqual(got.shape, want.shape)
                torch.testing.assert_close(got, want)

    def test_a_graph_of_aten(self):
        from torch.fx.experimental.proxy_tensor import make_fx
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.SiLU(), torch.nn.Linear(64, 32), torch.nn.LayerNorm(32)).eval()
        with torch.no_grad():
            module = make_fx(lambda x, *w: torch.nn.functional.layer_norm(
                torch.nn.functional.linear(torch.nn.functional.silu(torch.nn.functional.linear(x, w[0], w[1])), w[2], w[3]), (32,), w[4], w[5])
                )(torch.randn(2, 3, 32), *[p.detach() for p in model.parameters()])
        (chain,) = chains.find(fx.graph_of(module, devices=False), ANYTHING)
        self.assertEqual([(layer.out, layer.activation, layer.norm, layer.bias is not None) for layer in chain.layers],
                         [(64, "silu", "", True), (32, "", "layer", True)])

    def test_gradients_are_seen(self):
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)).bfloat16()
        x = torch.randn(6, 32).bfloat16()
        for grad in (True, False):
            module = traced(model, x)
            with torch.set_grad_enabled(grad):
                (chain,) = chains.find(fx.graph_of(module, devices=False), ANYTHING)
            self.assertEqual((chain.trains, chain.wants_dx, chain.refused), (grad, False, ""))


@unittest.skipIf(torch is None, "PyTorch is not here")
class Operation(unittest.TestCase):
    def chain(self):
        module = traced(modules()[0][1], torch.randn(6, 32))
        (chain,) = chains.find(fx.graph_of(module, grad=False, devices=False), ANYTHING)
        return chain, module

    def test_shapes_are_known_without_running(self):
        chain, _ = self.chain()
        with torch.inference_mode():
            operands = [torch.empty(1, device="meta")] * len(chain.operands())
            got = torch.ops.tally.chain(torch.empty(2, 3, 32, device="meta"), operands, spec.of(chain))
        self.assertEqual(tuple(got.shape), (2, 3, 32))

    def test_what_it_is_measured_against_is_the_same(self):
        chain, module = self.chain()
        operands = [module.get_parameter(name) for name in chain.operands()]
        x = torch.randn(6, 32)
        (got,) = plain.traced(chain)(x, *operands)
        torch.testing.assert_close(got, module(x))

    def test_each_of_chains_that_are_alike_has_places_for_its_weights(self):
        chain, module = self.chain()
        operands = [module.get_parameter(name).detach() for name in chain.operands()]
        made = []

        def places(uses):
            runner = operation.Runner(spec.of(chain))
            runner.uses = uses
            runner.pipeline = lambda operands, device: made.append(operands) or object()
            with unittest.mock.patch("torch.cuda.is_current_stream_capturing", lambda: False):
                kept = [[tensor.clone() for tensor in operands] for _ in range(200)]  # each somewhere else
                return [runner.of(mine, torch.device("cpu"), 1) is not None for mine in kept].count(True)

        self.assertEqual([places(uses) for uses in (0, 1, 15)], [8, 8, 120])
        self.assertEqual(len(made), 8 + 8 + 120)

    def test_rows_that_the_kernel_cannot_read_are_copied(self):
        x = torch.arange(4 * 48, dtype=torch.float32).reshape(4, 48)
        for rows, copied in ((x, False), (x[:, :32], False), (x[:, ::2], True), (x[:, :33].contiguous(), True), (x[:1].expand(4, 48), True)):
            got = operation.rows_of(rows)
            self.assertEqual(got.data_ptr() != rows.data_ptr(), copied)
            torch.testing.assert_close(got, rows)


@unittest.skipIf(torch is None or not training.IS_POSSIBLE, "PyTorch 2.4 is not here")
class Training(unittest.TestCase):
    """In PyTorch's operations, which do what both kernels do."""

    def test_gradients_are_those_of_the_layers(self):
        torch.manual_seed(3)
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        for columns, wants_dx, inner in ((48, True, [96, 32, 80]), (48, False, [96, 32, 80]), (384, True, [96, 32, 80]),
                                         (64, True, [64, 64, 64, 64]), (64, True, [32, 64, 64, 64, 64, 32, 32])):
            layers = []
            for a, b in zip([columns, *inner], [*inner, 16]):
                layers += [linear(a, b, bias=len(layers) != 2), relu()]
            model = torch.nn.Sequential(*layers).bfloat16()
            model[0].weight.requires_grad_(False)  # not wanted
            module = traced(model, torch.randn(130, columns).bfloat16().requires_grad_(wants_dx))
            (chain,) = chains.find(fx.graph_of(module, devices=False), ANYTHING)
            self.assertEqual((chain.widths(), chain.trains, chain.wants_dx), ([columns, *inner, 16], True, wants_dx))
            backend.replace(module, [chain])
            x = torch.randn(130, columns).bfloat16()
            got = []
            for run in (model, module):
                taken = x.clone().requires_grad_(wants_dx)
                y = run(taken)
                wanted = [p for p in model.parameters() if p.requires_grad] + ([taken] if wants_dx else [])
                got.append([y.detach(), *torch.autograd.grad(y, wanted, torch.ones_like(y))])
            for want, have in zip(*got):
                torch.testing.assert_close(have.float(), want.float(), rtol=0.05, atol=0.05 * want.float().abs().max().item())

    def test_weights_that_two_layers_share_have_the_sum(self):
        x, w = torch.randn(70, 32).bfloat16(), torch.randn(32, 32).bfloat16().requires_grad_()
        text = spec.of(chains.Chain("x", layers=[chains.Layer("0", 32, 32, "w", activation="relu"), chains.Layer("1", 32, 32, "w")],
                                    rows=70, dtype="bf16", trains=True))
        y, _ = training.train(x, [w], text)
        want = torch.relu(x @ w.t()) @ w.t()
        dy = torch.randn_like(y)
        for got, expected in zip(torch.autograd.grad(y, [w], dy), torch.autograd.grad(want, [w], dy)):
            torch.testing.assert_close(got, expected, rtol=0.05, atol=0.5)

    def test_shapes_are_known_without_running(self):
        x, w = torch.empty(130, 48, device="meta", dtype=torch.bfloat16), torch.empty(1, device="meta", dtype=torch.bfloat16)
        layers = [chains.Layer("0", 48, 96, "w"), chains.Layer("1", 96, 16, "w")]
        text = spec.of(chains.Chain("x", layers=layers, rows=130, dtype="bf16", trains=True, wants_dx=True))
        with torch.no_grad():
            y, saved = training.train(x, [w], text)
            dz, dx = training.train_backward(y, saved, [w], text)
        self.assertEqual([tuple(t.shape) for t in (y, saved, dz, dx)], [(130, 16), (130 * 96 + 3 * 2 * 256,), (130 * 96,), (130, 48)])


@unittest.skipIf(torch is None, "PyTorch is not here")
class Backend(unittest.TestCase):
    """With a compiler that only writes down what it gets."""

    def setUp(self):
        self.got = []

        def compile_fx(module, inputs, config_patches=None):
            self.got.append((module, inputs, config_patches))
            return module.forward

        inductor, compiler = types.ModuleType("torch._inductor"), types.ModuleType("torch._inductor.compile_fx")
        compiler.compile_fx = compile_fx
        inductor.list_mode_options = lambda mode: {"max_autotune": mode == "max-autotune"}
        before = {name: sys.modules.get(name) for name in ("torch._inductor", "torch._inductor.compile_fx")}
        sys.modules.update({"torch._inductor": inductor, "torch._inductor.compile_fx": compiler})
        self.addCleanup(self.restore, before)
        attribute = unittest.mock.patch.object(torch, "_inductor", inductor, create=True)
        attribute.start()
        self.addCleanup(attribute.stop)

    @staticmethod
    def restore(modules):
        for name, module in modules.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module

    def compiled(self, choose, **how):
        module = traced(modules()[0][1], torch.randn(6, 32))
        chosen, backend.choose = backend.choose, choose
        try:
            with torch.no_grad():
                return module, backend.tally(module, ["inputs"], **how)
        finally:
            backend.choose = chosen

    def test_the_rest_goes_to_inductor_with_its_mode_and_options(self):
        module, _ = self.compiled(lambda module, patches: chains.find(fx.graph_of(module, devices=False), ANYTHING),
                                  mode="max-autotune", options={"triton.cudagraphs": True})
        ((got, inputs, patches),) = self.got
        self.assertIs(got, module)
        self.assertEqual((inputs, patches), (["inputs"], {"max_autotune": True, "triton.cudagraphs": True}))
        self.assertEqual(len([node for node in got.graph.nodes if node.op == "call_module"]), 0)

    def test_a_mistake_of_ours_costs_nobody_his_model(self):
        def choose(module, patches):
            raise KeyError("something")

        with self.assertLogs("tally.pipelines", "WARNING"):
            module, _ = self.compiled(choose)
        self.assertEqual(self.got, [(module, ["inputs"], None)])

    def test_nothing_is_measured_that_is_refused(self):
        module = traced(modules()[0][1], torch.randn(6, 32))
        with torch.no_grad():
            self.assertEqual(backend.choose(module, {}), [])  # fp32, and on the CPU


if __name__ == "__main__":
    unittest.main()
