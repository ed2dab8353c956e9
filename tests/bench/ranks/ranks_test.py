"""bench/ranks/ranks.py: whether losses differ. Natively they may differ from run to run, which is no fault of Tally's."""
import unittest

import ranks


def differs(before, tally, after):
    return ranks.differs([{"digest": digest} if digest else {"failed": "exit status 1"} for digest in (before, tally, after)])


class Differs(unittest.TestCase):
    def test_equal(self):
        self.assertFalse(differs("a", "a", "a"))

    def test_other_than_two_equal_native_runs(self):
        self.assertTrue(differs("a", "b", "a"))

    def test_native_runs_that_differ_are_no_reference(self):
        self.assertFalse(differs("a", "c", "b"))

    def test_a_run_that_failed_is_not_one_that_differs(self):
        for runs in ((None, "b", "a"), ("a", None, "a"), ("a", "b", None), (None, "b", None)):
            self.assertFalse(differs(*runs))


if __name__ == "__main__":
    unittest.main(verbosity=2)
