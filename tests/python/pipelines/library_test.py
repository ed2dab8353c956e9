"""The binding: what is called of libtally-pipelines.so, with what, and what becomes of its errors."""
import os
import tempfile
import unittest

import stub
from tally.pipelines import chains, graph, library

HERE = os.path.dirname(os.path.abspath(__file__))


def chain_of(name):
    (chain,) = chains.find(graph.read(os.path.join(HERE, "graphs", name + ".json")))
    return chain


class Calls(stub.StubTest):
    ADDRESSES = {"layer0.weight": 1 << 44, "layer0.bias": 200, "scale": 300, "layer1.weight": 400, "layer1.bias": None}

    def pipeline(self):
        return library.Pipeline(chain_of("views"), self.ADDRESSES.__getitem__, {"layer0.weight": 64, "layer1.weight": 200}.__getitem__, 8192)

    def test_a_chain_is_built_in_its_order(self):
        pipeline = self.pipeline()
        self.assertEqual(self.calls(), ["Create 0", f"AddLinear {1 << 44} 64 200 64 128", "AddActivation 4", "AddNorm 2 300 0 1",
                                        "AddConcat 1", "AddLinear 400 200 0 192 64", "AddResidual", "Instantiate 8192"])
        pipeline.launch(7, 1 << 45, 64, 3 << 44, 64, 8000)
        self.assertEqual(self.calls()[-1], f"Launch 7 {1 << 45} 64 {3 << 44} 64 8000")
        plan = pipeline.plan(8192)
        self.assertEqual(plan.as_dict()["predicted_us"], 8.192)
        self.assertEqual(str(plan), "weights resident, 2 warpgroups a block, 200 KiB shared")
        pipeline.close()
        pipeline.close()
        self.assertEqual(self.calls().count("Destroy"), 1)

    def test_its_sentence_comes_through_and_nothing_stays(self):
        os.environ["TALLY_STUB_REFUSES"] = "Instantiate"
        with self.assertRaisesRegex(library.Refused, "^the stub does not like it$"):
            self.pipeline()
        self.assertEqual(self.calls()[-1], "Destroy")
        os.environ["TALLY_STUB_REFUSES"] = "Launch"
        with self.assertRaises(library.PipelineError):
            self.pipeline().launch(0, 0, 0, 0, 0, 1)


class TrainingCalls(stub.StubTest):
    def test_a_chain_that_trains_is_instantiated_for_that(self):
        chain = chain_of("training")
        addresses = {name: 1000 * i for i, name in enumerate(chain.operands(), 1)}
        pipeline = library.Pipeline(chain, addresses.__getitem__, lambda name: 128, 8192)
        self.assertEqual(self.calls(), ["Create 0", "AddLinear 1000 128 2000 128 128", "AddActivation 1",
                                        "AddLinear 3000 128 4000 128 128", "InstantiateTraining 8192 0"])
        pipeline.launch_forward(7, 1 << 45, 128, 3 << 44, 136, 5 << 44, 8000)
        pipeline.launch_backward(7, 1 << 45, 128, 3 << 44, 5 << 44, None, 128, 8000)
        self.assertEqual(self.calls()[-2:], [f"LaunchForward 7 {1 << 45} 128 {3 << 44} 136 {5 << 44} 8000",
                                             f"LaunchBackward 7 {1 << 45} 128 {3 << 44} {5 << 44} 0 128 8000"])
        plan = pipeline.plan(8192)
        self.assertEqual((plan.predicted_us, plan.saved_bytes, plan.dz_bytes), (3 * 8.192, 8192 * 3, 8192 * 2))
        self.assertTrue(str(plan).startswith("forward: weights resident, 2 warpgroups a block, 200 KiB shared; backward: "))

    def test_its_inputs_gradient_is_asked_for_where_the_kernel_gives_it(self):
        chain = chain_of("training")
        chain.wants_dx = True
        library.Pipeline(chain, lambda name: 16, lambda name: 128, 8192)
        self.assertEqual(self.calls()[-1], "InstantiateTraining 8192 1")


class Finding(stub.StubTest):
    def test_a_library_that_is_none(self):
        os.environ["TALLY_PIPELINES_LIBRARY"] = "/nowhere/libtally-pipelines.so"
        with self.assertRaisesRegex(library.NoLibrary, "there is no libtally-pipelines.so: install Tally, or name it"):
            library.load()
        with tempfile.NamedTemporaryFile() as file:
            os.environ["TALLY_PIPELINES_LIBRARY"] = file.name
            with self.assertRaisesRegex(library.NoLibrary, "is no libtally-pipelines.so"):
                library.load()
        os.environ["TALLY_PIPELINES_LIBRARY"] = "libc.so.6"
        with self.assertRaisesRegex(library.NoLibrary, "tallyPipelineCreate"):
            library.load()


class Built(unittest.TestCase):
    """The library itself, where no GPU is."""

    def test_without_a_gpu_it_says_so(self):
        path = os.path.join(os.environ.get("TALLY_TEST_BUILD", ""), "lib", "tally", library.NAME)
        if not os.path.exists(path):
            self.skipTest("libtally-pipelines.so is not built")
        before = os.environ.get("TALLY_PIPELINES_LIBRARY")
        os.environ["TALLY_PIPELINES_LIBRARY"] = path
        try:
            with self.assertRaisesRegex(library.PipelineError, "^(no CUDA driver|no CUDA context is current)"):
                library.Pipeline(chain_of("views"), lambda name: 4096, lambda name: 200, 8192)
            with self.assertRaisesRegex(library.PipelineError, "^the weights are not aligned to 16 bytes$"):
                library.Pipeline(chain_of("views"), lambda name: 4097, lambda name: 200, 8192)
        finally:
            os.environ.pop("TALLY_PIPELINES_LIBRARY")
            if before is not None:
                os.environ["TALLY_PIPELINES_LIBRARY"] = before


if __name__ == "__main__":
    unittest.main()
