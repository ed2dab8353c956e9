#!/usr/bin/env python3
"""tools/test_names.py finds every kind of test, and says of each that is gone whether another suite has it."""
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
import test_names  # noqa: E402
from small_repository import commit, git  # noqa: E402

GTEST = '''// TEST(Comment, IsNone) {}
TEST(Old, Moves) {}
TEST_F(Stays,
       OnTwoLines) {}
TEST_P(Stays, Often) {}
INSTANTIATE_TEST_SUITE_P(All, Stays, Values(1, 2));
'''
BEFORE = {
    "tests/a_test.cc": GTEST + "TEST(Old, IsGone) {}\n",
    "tests/b_test.py": "class One(TestCase):\n    def test_it(self):\n        pass\n    def helps(self):\n        pass\n",
    "tests/CMakeLists.txt": "tally_test(a_test a_test.cc)\n# tally_test(commented_test c.cc)\nadd_test(NAME b_test COMMAND b)\n"
                            "add_test(NAME program_${name} COMMAND c)\n",
    "tests/programs/scan.cu": "",
    "server/main.cc": "TEST_MACRO(no, test)\n",
}
AFTER = {**BEFORE, "tests/a_test.cc": GTEST.replace("Old", "New") + "TEST(New, Comes) {}\n"}


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as root:
            git(root, "init", "-q")
            revisions = commit(root, BEFORE), commit(root, AFTER)
            cls.before, cls.after = (test_names.tests_in(root, revision) for revision in revisions)

    def test_finds_every_kind_and_nothing_in_comments(self):
        self.assertEqual({test.full_name for test in self.before},
                         {"Old.Moves", "Old.IsGone", "Stays.OnTwoLines", "Stays.Often", "One.test_it", "a_test", "b_test",
                          "tests/programs/scan.cu"})

    def test_a_suite_with_another_name_is_no_loss(self):
        gone, new = set(self.before) - set(self.after), set(self.after) - set(self.before)
        moved = test_names.pair_moved(gone, new)
        self.assertEqual([(a.full_name, b.full_name) for a, b in moved], [("Old.Moves", "New.Moves")])
        self.assertEqual([test.full_name for test in gone], ["Old.IsGone"])
        self.assertEqual([test.full_name for test in new], ["New.Comes"])

    def test_two_that_are_gone_do_not_share_one_that_came(self):
        gone = {test_names.Test("gtest", suite, "Ends") for suite in ("A", "B")}
        self.assertEqual(len(test_names.pair_moved(gone, {test_names.Test("gtest", "C", "Ends")})), 1)
        self.assertEqual(len(gone), 1)

    def test_what_is_no_revision_is_an_error(self):
        wrong = subprocess.run([sys.executable, os.path.join(TOOLS, "test_names.py"), "no-such-revision"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
        self.assertIn("no-such-revision", wrong.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
