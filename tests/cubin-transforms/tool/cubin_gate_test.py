#!/usr/bin/env python3
"""cubin-gate as people and scripts use it: exit statuses, what --explain says, what is written."""
import json
import os
import subprocess
import tempfile
import unittest

TOOL, CUBINS = os.environ["TALLY_TEST_CUBIN_GATE"], os.environ["TALLY_TEST_CUBINS_DIR"]


def run(*arguments):
    return subprocess.run([TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


def cubin(name):
    return os.path.join(CUBINS, name)


class CubinGate(unittest.TestCase):
    def test_explains_every_kernel(self):
        result = run("--explain=json", cubin("sm_90.cubin"))
        self.assertEqual(result.returncode, 2)  # one pretends to be NCCL's
        kernels = {kernel["kernel"]: kernel for kernel in json.loads(result.stdout)["cubins"][0]["kernels"]}
        self.assertEqual(kernels["Plain"]["status"], "gated")
        self.assertEqual(kernels["Plain"]["hidden_parameter_offset"], 16)
        self.assertEqual(kernels["Plain"]["hidden_parameter_ordinal"], 2)
        self.assertEqual(kernels["ncclDevKernel_Pretended"]["reason"], "it communicates with other GPUs, by its name")
        text = run("--explain", cubin("sm_90.cubin")).stdout
        self.assertIn("Plain: gated, its 12 bytes of parameters continue at 16", text)

    def test_writes_the_gated_cubin_of_an_architecture(self):
        with tempfile.TemporaryDirectory() as folder:
            alone, chosen = os.path.join(folder, "a"), os.path.join(folder, "b")
            self.assertEqual(run(cubin("sm_80.cubin"), "-o", alone).returncode, 2)
            self.assertEqual(run("--arch", "80", cubin("two.fatbin"), "-o", chosen).returncode, 2)
            with open(alone, "rb") as first, open(chosen, "rb") as second:
                image = first.read()
                self.assertEqual(second.read()[:len(image)], image)
            self.assertGreater(len(image), os.path.getsize(cubin("sm_80.cubin")))
            result = run(cubin("two.fatbin"), "-o", os.path.join(folder, "c"))
            self.assertEqual(result.returncode, 1)
            self.assertIn("choose with --arch", result.stderr)

    def test_says_what_is_wrong_with_its_input(self):
        for arguments in (["/nowhere"], [__file__], ["--arch", "61", cubin("two.fatbin")], [], ["--format", "odd"]):
            result = run(*arguments)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertTrue(result.stderr, arguments)

    def test_counts(self):
        result = run("--format", "json", "--census", cubin("two.fatbin"), cubin("sm_90.cubin"), cubin("undefined.cubin"))
        self.assertEqual(result.returncode, 2)
        census = json.loads(result.stdout)
        self.assertEqual([(row["library"], row["arch"]) for row in census["rows"]],
                         [("two.fatbin", 80), ("two.fatbin", 90), ("sm_90.cubin", 90), ("undefined.cubin", 90)])
        total = {row["arch"]: row for row in census["totals"]}[90]
        self.assertEqual(total["kernels"], sum(row["kernels"] for row in census["rows"] if row["arch"] == 90))
        self.assertEqual(total["gated"] + sum(total["refusals"].values()), total["kernels"])
        self.assertIn("it is relocatable", total["refusals"])
        for style in ("text", "markdown"):
            self.assertIn("two.fatbin", run("--format", style, "--census", cubin("two.fatbin")).stdout)

    def need_a_linker(self):
        if "no libnvJitLink was found" in run(cubin("separate.cubin")).stderr:
            self.skipTest("no libnvJitLink")

    def test_links_what_is_relocatable(self):
        self.need_a_linker()
        apart, whole = (json.loads(run("--explain=json", cubin(name)).stdout)["cubins"][0]["kernels"]
                        for name in ("separate.cubin", "sm_90.cubin"))
        self.assertEqual(sorted((kernel["kernel"], kernel["status"]) for kernel in apart),
                         sorted((kernel["kernel"], kernel["status"]) for kernel in whole))

    def test_says_why_it_cannot_link(self):
        self.need_a_linker()
        result = run("--explain", cubin("undefined.cubin"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("Needs: refused: it is relocatable", result.stdout)
        self.assertRegex(result.stderr, "it cannot be linked: .*Undefined reference to '.*Elsewhere")

    def test_a_linker_that_is_none(self):
        for what in ("/nowhere.so", "libm.so.6"):
            result = run("--linker", what, cubin("separate.cubin"))
            self.assertEqual(result.returncode, 1)
            self.assertIn(what, result.stderr)

    def test_succeeds_if_nothing_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            source, image = os.path.join(folder, "a.ptx"), os.path.join(folder, "a.cubin")
            with open(source, "w", encoding="ascii") as file:
                file.write(".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry K() {\n ret;\n}\n")
            subprocess.run([os.environ["TALLY_TEST_PTXAS"], "-arch=sm_90", source, "-o", image], check=True)
            self.assertEqual(run(image).returncode, 0)
            self.assertEqual(run("--census", image).returncode, 0)


if __name__ == "__main__":
    unittest.main()
