"""How a bench ends: CI sees a failure by its exit status only."""
import sys
import unittest
from unittest import mock

import ways


def ended(main):
    """What the interpreter gets to print and to exit with: None, or one line, which means status 1."""
    try:
        with mock.patch.object(sys, "argv", ["bench/some/thing.py"]):
            ways.run_bench(main)
    except SystemExit as end:
        return end.code
    return None


def fails():
    raise ways.Failed("no GPU")


class RunBench(unittest.TestCase):
    def test_nothing_wrong(self):
        self.assertIsNone(ended(lambda: []))

    def test_all_that_is_wrong_is_one_line(self):
        self.assertEqual(ended(lambda: ["a differs", "b ended"]), "thing.py: a differs; b ended")

    def test_what_could_not_be_measured_is_wrong_too(self):
        self.assertEqual(ended(fails), "thing.py: no GPU")


if __name__ == "__main__":
    unittest.main(verbosity=2)
