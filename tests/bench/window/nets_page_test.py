"""What bench/window/nets.py says is wrong, and how it counts: a result that differs must not pass."""
import unittest

import nets
import nets_page
from nets_page import Cell


def cell(way, digest="a", samples=(2.0,), failure="", case="c"):
    return Cell("P", case, way, list(samples), digest, failure)


class Problems(unittest.TestCase):
    def test_equal_bits_are_no_problem(self):
        self.assertEqual(nets_page.problems([cell("native"), cell("tally"), cell("window"), cell("native", "b", case="d")]), [])

    def test_other_bits_are(self):
        self.assertEqual(nets_page.problems([cell("native"), cell("window", "b")]), ["P, c: DIFFERENT BITS: native a, window b"])

    def test_what_failed_is(self):
        self.assertEqual(nets_page.problems([cell("native"), cell("window", "", (), "gone")]), ["P, c, window: gone"])


class Counters(unittest.TestCase):
    def test_what_was_counted_before_is_left_out(self):
        before = {"id": 3, "held": 10, "barriers": {"no-ptx": 4, "not-yet": 9}}
        after = {"id": 3, "held": 15, "barriers": {"no-ptx": 6, "not-yet": 9, "reply": 1}, "mode": "on"}
        self.assertEqual(nets.added(before, after), {"held": 5, "barriers": {"no-ptx": 2, "reply": 1}})


class Page(unittest.TestCase):
    def test_gains_are_over_the_way_named(self):
        page = nets_page.markdown({}, [cell("native", samples=[4]), cell("tally", samples=[6]), cell("window", samples=[2])], {}, False)
        self.assertIn("| P | c | 4 (4-4) | 6 (6-6) | 2 (2-2) | 2.00 | 3.00 |", page)

    def test_a_cell_that_failed_has_no_gain(self):
        page = nets_page.markdown({}, [cell("native"), cell("window", "", (), "gone")], {}, False)
        self.assertIn("| P | c | 2 (2-2) | failed | - | - |", page)
        self.assertIn("Results: P, c, window: gone", page)


if __name__ == "__main__":
    unittest.main()
