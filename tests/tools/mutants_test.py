#!/usr/bin/env python3
"""Lists of mutants are read and applied as tests/mutants/README.md says, and the page counts right."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools"))
import mutant_list  # noqa: E402
import mutant_page  # noqa: E402
import mutant_tree  # noqa: E402

HEAD = "tests: ^room_test$ ^program_\n"


def read(text):
    return mutant_list.read_list("tests/mutants/room.txt", "room", text.splitlines(keepends=True))


class Lists(unittest.TestCase):
    def test_is_read(self):
        one, other = read(HEAD + "# why\n[one] room/a.cc\n- x < y\n+ x <= y\ntests: ^sooner$\n\n[other] room/b.h\n@ f(\n- x\n"
                                 "+ y\nsurvives: nobody\nsurvives: sees it\n")
        self.assertEqual((one.id, one.path, one.old, one.new, one.tests),
                         ("room/one", "room/a.cc", ["x < y"], ["x <= y"], ["^sooner$", "^room_test$", "^program_"]))
        self.assertEqual((other.anchor, other.survives), ("f(", "nobody sees it"))

    def test_mistakes_are_told_with_their_line(self):
        for text, fragment in (("- x\n", "room.txt:1: before the first"), (HEAD + "[a] b.cc\nx = y\n", "room.txt:3: a line"),
                               (HEAD + "[a] b.cc\n+ y\n", "no old text"), ("[a] b.cc\n- x\n+ y\n", "or no tests")):
            with self.assertRaisesRegex(mutant_list.ListError, fragment):
                read(text)

    def test_names_are_used_once(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, mutant_list.LISTS))
            with open(os.path.join(root, mutant_list.LISTS, "room.txt"), "w", encoding="utf-8") as file:
                file.write(HEAD + 2 * "[a] b.cc\n- x\n+ y\n")
            with self.assertRaisesRegex(mutant_list.ListError, "is there already"):
                mutant_list.read_all(root)


class Applying(unittest.TestCase):
    def apply(self, text, source):
        return read(HEAD + "[a] b.cc\n" + text)[0].applied_to(source)

    def test_replaces_what_is_there_once(self):
        self.assertEqual(self.apply("- x < y\n+ x <= y\n", "if (x < y) f();\n"), "if (x <= y) f();\n")

    def test_lines_may_be_indented_anew(self):
        self.assertEqual(self.apply("- f();\n- g();\n+ g();\n", "{\n      f();\n  g();\n}\n"), "{\n      g();\n}\n")

    def test_refuses_what_is_nowhere_or_twice(self):
        for source, times in (("f();", 0), ("x; x;", 2)):
            with self.assertRaisesRegex(mutant_list.ListError, f"occurs {times} times in b.cc"):
                self.apply("- x\n+ y\n", source)

    def test_an_anchor_says_which(self):
        self.assertEqual(self.apply("@ g()\n- x\n+ y\n", "f() x; g() x; x"), "f() x; g() y; x")
        with self.assertRaisesRegex(mutant_list.ListError, "anchor occurs 2 times"):
            self.apply("@ x\n- x\n+ y\n", "x; x")

    def test_refuses_what_changes_nothing(self):
        with self.assertRaisesRegex(mutant_list.ListError, "are the same"):
            self.apply("- x\n+ x\n", "x")


class Judging(unittest.TestCase):
    """What counts as killed, with scripted answers of tests."""

    def judge(self, answers, passed=()):
        tree = mutant_tree.Tree.__new__(mutant_tree.Tree)
        tree.jobs, tree.passed, tree.useless = 1, dict.fromkeys(passed, 1.0), set()
        tree.build = lambda tests: ""
        self.is_mutated = True
        tests = [mutant_tree.Test({"name": name}, "/build", set()) for name in answers]

        def run(test):
            return answers[test.name].pop(0), "Case.A" if self.is_mutated else ""

        def take_out():
            self.is_mutated = False

        def put_in():
            self.is_mutated = True

        tree.run = run
        found = tree.first_failure(tests, take_out, put_in)
        self.assertTrue(self.is_mutated)
        return found, tree.useless

    def test_twice_failed_and_passing_without(self):
        self.assertEqual(self.judge({"a": ["passed"], "b": ["failed", "failed", "passed"]}), (("killed", "b: Case.A"), set()))

    def test_failed_once_on_a_busy_machine(self):
        self.assertEqual(self.judge({"a": ["failed", "passed"]}), (None, set()))

    def test_what_fails_anyway_is_not_believed_and_the_others_are_asked(self):
        found, useless = self.judge({"a": ["failed"] * 4, "b": ["failed", "failed"]}, passed=["b"])
        self.assertEqual((found, useless), (("killed", "b: Case.A"), {"a"}))

    def test_what_is_skipped_has_noticed_nothing(self):
        self.assertEqual(self.judge({"a": ["skipped"], "b": ["passed"]}), (None, {"a"}))
        self.assertEqual(self.judge({"a": ["skipped"], "b": ["failed", "failed"]}, passed=["b"]), (("killed", "b: Case.A"), {"a"}))

    def test_a_test_without_what_it_needs_is_skipped(self):
        tree = mutant_tree.Tree.__new__(mutant_tree.Tree)
        tree.passed, tree.running = {}, set()
        for command, expected in (("exit 77", "skipped"), ("echo SKIPPED ALL: not built", "skipped"), ("true", "passed"),
                                  ("echo SKIPPED ALL; false", "failed")):
            test = mutant_tree.Test({"name": command, "command": ["sh", "-c", command]}, "/", set())
            self.assertEqual(tree.run(test)[0], expected, command)
        self.assertEqual(list(tree.passed), ["true"])

    def test_what_a_test_starts_is_built_anew(self):
        outputs = {"bin/tally-device-plugin", "bin/ptx-opt", "lib/tally/client/libcuda.so.1", "tests/unit", "tests/integration/all", "all"}

        def needs(label):
            return mutant_tree.Test({"name": "t", "command": ["/b/tests/unit"],
                                     "properties": [{"name": "LABELS", "value": [label]}]}, "/b", outputs).needs
        product = {"bin/tally-device-plugin", "lib/tally/client/libcuda.so.1"}
        self.assertEqual(needs("unit"), {"tests/unit"})
        self.assertEqual(needs("programs"), {"tests/unit", *product})
        self.assertEqual(needs("integration"), {"tests/unit", "tests/integration/all", *product})

    def test_a_hang_is_seen_once(self):
        self.assertEqual(self.judge({"a": ["timeout"]}, passed=["a"])[0][0], "timeout")


class Results(unittest.TestCase):
    def test_a_result_is_of_one_text(self):
        old, = read(HEAD + "[a] b.cc\n- x\n+ y\n")
        new, = read(HEAD + "[a] b.cc\n- x\n+ z\n")
        result = {"outcome": "killed", "by": "t", "seconds": 2, "commit": "abc", "text": mutant_page.digest(old)}
        self.assertEqual(mutant_page.current([old], {old.id: result}), {old.id: result})
        self.assertEqual(mutant_page.current([new], {old.id: result}), {})

    def test_page_and_numbers(self):
        mutants = read(HEAD + "".join(f"[m{i}] room/b.cc\n- x\n+ y\n" for i in range(4)))
        results = {m.id: {"outcome": outcome, "by": "t", "seconds": 30, "commit": "abc",
                          "text": mutant_page.digest(m), "first": "survived"}
                   for m, outcome in zip(mutants, ("killed", "timeout", "survived"))}
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs/results"))
            mutant_page.write_csv(root, mutants, results)
            self.assertEqual(mutant_page.read_csv(root), results)
            text = mutant_page.page(root, mutants, results, "def")
        flat = text.replace("\n", " ")
        self.assertIn("**2 of 3 planted mistakes were noticed (66 %).** When first run 0 were (0 %)", flat)
        self.assertIn("The list has 4; 1 of them", flat)
        self.assertIn("| room | 0 | 4 | 3 | 2 (1 by time) | 1 | 66 % |", text)
        self.assertIn("* `room/m2` (room/b.cc): a test is missing.", text)


class Command(unittest.TestCase):
    def test_help_teaches(self):
        run = subprocess.run([os.path.join(ROOT, "tools/mutants"), "--help"], stdout=subprocess.PIPE, text=True, check=True)
        for word in ("--only", "--changed", "--survived", "--page", "killed", "timeout", "survived", "broken"):
            self.assertIn(word, run.stdout)


if __name__ == "__main__":
    unittest.main()
