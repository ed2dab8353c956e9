"""python -m tally.pipelines explain, as a user calls it: without PyTorch, with the stub's library and driver or neither."""
import json
import os
import subprocess
import sys
import tempfile

import stub

GRAPHS = os.path.join(stub.HERE, "graphs")


class Explain(stub.StubTest):
    def run_it(self, *arguments, status=0, driver=True):
        ended = subprocess.run([sys.executable, "-m", "tally.pipelines", *arguments], env=self.environment(driver), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(ended.returncode, status, ended.stderr)
        return ended.stdout if status == 0 else ended.stderr

    def test_a_plan_is_asked_of_the_library(self):
        printed = self.run_it("explain", os.path.join(GRAPHS, "policy.json"))
        self.assertIn("chain 1: 128 - 256 - 256 - 128, 32768 rows, bf16, from hidden0 to residual", printed)
        self.assertIn("  layer 2: the input added\n  ends because tanh follows, which the kernel does not do\n"
                      "  plan: weights resident, 2 warpgroups a block, 200 KiB shared; predicted 32.8 us\n", printed)
        self.assertIn("  refused: it gives 12 columns; the kernel gives multiples of 16 from 16 to 256", printed)
        self.assertIn("AddLinear 4096 128 4096 128 256", self.calls())
        self.assertEqual(self.calls()[-1], "Destroy")

    def test_the_librarys_refusal_is_shown(self):
        os.environ["TALLY_STUB_REFUSES"] = "Instantiate"
        (found,) = json.loads(self.run_it("explain", os.path.join(GRAPHS, "views.json"), "--json"))
        (row,) = found["chains"]
        self.assertEqual((row["refused"], row["taken"], row["rows"]), ("the stub does not like it", False, 8192))
        self.assertEqual(row["layers"][1], {"columns": 192, "out": 64, "bias": True, "concat": "last", "residual": True})

    def test_without_a_library_or_gpu_it_says_so(self):
        self.assertIn("may be taken; no plan: there is no CUDA driver on this machine", self.run_it("explain", os.path.join(GRAPHS, "eight.json"), driver=False))
        os.environ["TALLY_PIPELINES_LIBRARY"] = "/nowhere/lib.so"
        self.assertIn("may be taken; no plan: there is no libtally-pipelines.so", self.run_it("explain", os.path.join(GRAPHS, "eight.json")))

    def test_what_is_wrong_is_one_sentence(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "bad.json")
            with open(path, "w", encoding="ascii") as file:
                file.write("{}")
            self.assertRegex(self.run_it("explain", path, status=1), "^tally.pipelines: not a graph: [^\n]*\n$")
        self.assertRegex(self.run_it("explain", "/nowhere/model.json", status=1), "^tally.pipelines: cannot read [^\n]*\n$")
        self.assertIn("required", self.run_it(status=2))

    def test_help_teaches(self):
        printed = self.run_it("explain", "--help")
        for words in ("def make():", "--export", "GRAPH.json", "TALLY_PIPELINES_LIBRARY"):
            self.assertIn(words, printed)


if __name__ == "__main__":
    import unittest
    unittest.main()
