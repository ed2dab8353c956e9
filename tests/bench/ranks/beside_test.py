"""Numbers of bench/ranks/beside.py: which steps count for what, and what the page says of them; and a graph that is launched again and
again."""
import time
import types
import unittest

import beside


class Split(unittest.TestCase):
    def test_a_step_counts_where_all_of_it_was(self):
        ends = [1.0, 1.9, 2.1, 3.0, 4.0, 5.5]
        took = [100, 200, 300, 400, 500, 600]  # the third begins before the requests do
        self.assertEqual(beside.split(ends, took, 2.0, 2.0), ([100, 200], [400, 500]))

    def test_none(self):
        self.assertEqual(beside.split([], [], 2.0, 2.0), ([], []))


def run(digest="a", **more):
    served = {"own_ms": [1.0] * 98 + [2.0] * 2, "latencies_ms": [], "unserved": 3, "wrong": 0}
    return {"capacity": 1, "digest": digest, "alone": {**served, "own_ms": [1.0] * 100}, "beside": served, "suspensions": 7,
            "steps_alone_ms": [10.0] * 9, "steps_beside_ms": [20.0] * 9, **more}


def page(**runs):
    return beside.page({"machine": {}, "service": "s", "training": "t", "gpus": 2, "load": 50, "runs": runs})


class Page(unittest.TestCase):
    def test_beside_is_compared_with_alone_in_the_same_mode(self):
        self.assertIn("| tally | 100 | 1.00, 1.00 | 1.00, 2.00 | 2.00 | 0, 3 | 10.00 (10.00 to 10.00) | 20.00 (20.00 to 20.00) | the first bits | 7 |",
                      page(tally=run()))

    def test_other_losses_than_the_first_modes_are_seen(self):
        self.assertNotIn("DIFFER", page(native=run(), tally=run()))
        self.assertIn("DIFFER", page(native=run(), tally=run("b")))

    def test_a_mode_that_failed_is_named_and_no_reference(self):
        text = page(native={"failed": "no end in time: log\nmore"}, tally=run("b"))
        self.assertIn("| native | no end in time: log |", text)
        self.assertIn("the first bits", text)

    def test_no_steps_within_are_no_number(self):
        self.assertIn("| - | the first bits", page(tally=run(steps_beside_ms=[])))


class Place:
    def __init__(self, script):
        self.script = script

    def command(self, words, role):  # pylint: disable=unused-argument
        return ["sh", "-c", self.script]


class SpreadGraph(unittest.TestCase):
    OPTIONS = types.SimpleNamespace(timeout=20, training="lu:spread", gpus=2)

    def test_each_launch_is_a_step_and_settled_ones_come_first(self):
        script = f"for i in $(seq 1 {beside.SETTLED_AFTER + 4}); do echo launch $i.5 $i.25; done; echo done; exec sleep 60"
        with beside.SpreadGraph("", Place(script), self.OPTIONS) as graph:
            graph.await_ready()
            while len(graph.rest) < 1:
                time.sleep(0.01)
            self.assertTrue(graph.is_running())
            answer = graph.answer()
        self.assertEqual((answer["ends"][1], answer["times_ms"][1], len(answer["ends"])), (2.5, 2.25, beside.SETTLED_AFTER + 4))

    def test_one_that_ends_before_it_is_settled_says_why(self):
        with beside.SpreadGraph("", Place("echo launch 1.5 1.25; echo the factors are wrong; exit 1"), self.OPTIONS) as graph:
            with self.assertRaisesRegex(beside.ways.Failed, "the factors are wrong"):
                graph.process.wait()
                graph.reader.join()
                graph.await_ready()


if __name__ == "__main__":
    unittest.main(verbosity=2)
