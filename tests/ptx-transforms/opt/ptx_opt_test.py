#!/usr/bin/env python3
"""ptx-opt as people call it: exit status, what goes where, and the options of the pass manager."""
import json
import os
import subprocess
import unittest

PTX_OPT = os.environ["TALLY_TEST_PTX_OPT"]
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
GOOD = ".visible .entry good(.param .u32 n){\n.reg .b32 %r<2>;\nmov.u32 %r1, %ctaid.x;\nret;\n}\n"
BAD = ".visible .entry bad(){\n.reg .b64 %rd<2>;\nmov.u64 %rd1, %gridid;\nret;\n}\n"


def ptx_opt(*arguments, text=HEADER + GOOD):
    """Exit status, standard output and standard error of ptx-opt on `text`."""
    run = subprocess.run([PTX_OPT, "-", *arguments], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, check=False, timeout=60)
    return run.returncode, run.stdout, run.stderr


class PtxOpt(unittest.TestCase):
    def test_status_says_what_became_of_the_kernels(self):
        status, output, said = ptx_opt("--pass=slice_grid")
        self.assertEqual((status, said), (0, ""))
        self.assertIn("good__tally_slice", output)
        status, output, said = ptx_opt("--pass=slice_grid", "--explain", text=HEADER + GOOD + BAD)
        self.assertEqual(status, 2)
        self.assertIn("good: done as good__tally_slice (slice_grid)\n", said)
        self.assertIn("bad: refused by slice_grid [grid-id]: ", said)
        for arguments, text in ((["--pass=no_such_pass"], HEADER + GOOD), (["--pass=slice_grid"], "no PTX at all"),
                                (["--pass=slice_grid", "--kernel=other"], HEADER + GOOD), ([], HEADER + GOOD)):
            status, output, said = ptx_opt(*arguments, text=text)
            self.assertEqual((status, output), (1, ""), arguments)
            self.assertNotEqual(said, "", arguments)

    def test_explains_as_json(self):
        _, _, said = ptx_opt("--pass=yield_check", "--explain=json", text=HEADER + GOOD + BAD)
        good, bad = json.loads(said)["kernels"]
        self.assertEqual((good["status"], good["passes"]), ("done", ["unify_barriers", "persistent_blocks", "yield_check"]))
        self.assertEqual((bad["status"], bad["code"]), ("refused", "grid-id"))

    def test_disables_passes(self):
        _, both, _ = ptx_opt("--pass=slice_grid,import_globals", "--explain", "--placement=only")
        status, one, said = ptx_opt("--pass=slice_grid,import_globals", "--disable-pass=import_globals", "--explain",
                                    "--placement=only")
        self.assertEqual((status, said), (0, "good: done as good__tally_slice (slice_grid)\n"))
        self.assertEqual(both, one, "there is nothing to import")
        status, output, said = ptx_opt("--pass=yield_check", "--disable-pass=unify_barriers")
        self.assertEqual((status, output), (1, ""))
        self.assertIn("yield_check needs unify_barriers, which is disabled", said)
        status, _, said = ptx_opt("--pass=slice_grid", "--disable-pass=slice_grid")
        self.assertEqual(status, 1)
        status, _, said = ptx_opt("--pass=slice_grid", "--disable-pass=slice_grit")
        self.assertEqual(status, 1)
        self.assertIn("there is no pass 'slice_grit'", said)

    def test_says_which_memory_is_touched(self):
        status, output, said = ptx_opt("--segments", text=HEADER + GOOD)
        self.assertEqual((status, output, said), (0, "good: none\n", ""))
        status, output, said = ptx_opt("--segments", text=HEADER + GOOD + BAD)
        self.assertEqual((status, said), (2, ""))
        self.assertIn("bad: barrier\n  barrier [grid-id]: ", output)
        _, output, _ = ptx_opt("--segments=json", text=HEADER + GOOD + BAD)
        good, bad = json.loads(output)["kernels"]
        self.assertEqual((good["kernel"], good["class"], good["accesses"]), ("good", "none", []))
        self.assertEqual((bad["class"], bad["barriers"][0]["code"]), ("barrier", "grid-id"))
        status, output, _ = ptx_opt("--segments", "--kernel=good", "--launch=1 32 7", text=HEADER + GOOD + BAD)
        self.assertEqual((status, output), (0, "good: none\n  launch 1 32 7:\n    touches nothing\n"))
        for arguments in (["--segments", "--pass=slice_grid"], ["--segments", "--kernel=other"], ["--launch=1 1 1"],
                          ["--segments=json", "--launch=1 1 1"], ["--segments", "--launch=1 1"], ["--segments=xml"]):
            status, output, said = ptx_opt(*arguments)
            self.assertEqual((status, output), (1, ""), arguments)
            self.assertNotEqual(said, "", arguments)

    def test_times_passes(self):
        status, output, said = ptx_opt("--pass=yield_check", "--time-passes")
        self.assertEqual(status, 0)
        self.assertNotIn(" ms ", output)
        for name in ("unify_barriers", "persistent_blocks", "yield_check"):
            self.assertRegex(said, rf"(?m)^{name} +[0-9.]+ ms in 1 kernels$")

    def test_prints_around_passes(self):
        places = [f"// ---- good {when} {name}\n" for name in ("unify_barriers", "persistent_blocks", "yield_check")
                  for when in ("before", "after")]
        _, _, said = ptx_opt("--pass=yield_check", "--print-before-all", "--print-after-all")
        found = [said.find(place) for place in places]
        self.assertNotIn(-1, found)
        self.assertEqual(found, sorted(found))
        self.assertNotIn("tally_end", said[found[0]:found[1]])
        self.assertIn("tally_end", said[found[1]:found[2]])
        _, _, said = ptx_opt("--pass=yield_check", "--print-after-all")
        self.assertEqual([place in said for place in places], [False, True] * 3)


if __name__ == "__main__":
    unittest.main()
