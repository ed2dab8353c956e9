"""bench/colocation/promises.py: what its page says of numbers, who is started and killed, and what counts as a failure."""
import sys
import unittest

import promises


def cell(p99=1.0, wrong=0):
    return {"own_ms": [p99 / 2] * 98 + [p99] * 2, "latencies_ms": [], "unserved": 0, "wrong": wrong}


def objective(over_alone, p99, rate, said=()):
    return {"objective": f"p99={over_alone}" if over_alone else "", "over_alone": over_alone, "solo": 10.0, "rate": rate, "beside": cell(p99),
            "said": said, **({} if over_alone else {"alone": cell(1.0), "capacity": 100})}


def results(**parts):
    return {"machine": {}, "service": "s", "training": "t", "smoke": False, "failures": [], "parts": {name: {"a room": rows} for name, rows in parts.items()}}


class Page(unittest.TestCase):
    def test_an_objective_is_held_against_its_own_latency_not_against_alone(self):
        said = [{"slo_observed_ns": 1_300_000, "slo_caution": 0.25}]
        text = promises.BENCH.page(results(objectives=[objective(None, 1.2, 3), objective(2.0, 1.5, 4, said)]))
        self.assertIn("| none | - | 1.200 | - | 0.300 | 0 | - |", text)
        self.assertIn("| p99=2.0 | 2.0 | 1.500 | 0.750 | 0.400 | 0 | 1.300 ms, 0.25 |", text)

    def test_faults_are_compared_with_nobody_and_all_ends_are_told(self):
        ends = [{"said": "error 700", "seconds": 0.5}, {"said": "killed", "seconds": 1.5}, {"said": "error 700", "seconds": 0.4}]
        rows = [{"kind": "nobody", "service": cell(1.0), "ends": []}, {"kind": "trap", "service": cell(2.0), "ends": ends}]
        text = promises.BENCH.page(results(faults=rows))
        self.assertIn("| nobody | - | 100 | 0, 0 | 0.500, 1.000, 1.000 | 1.000 |", text)
        self.assertIn("| trap | 2 x error 700, 1 x killed, 1.5 s | 100 | 0, 0 | 1.000, 2.000, 2.000 | 2.000 |", text)

    def test_late_requests_are_counted_for_each_program_without_those_that_waited_for_a_fault(self):
        own = [0.7] * 96 + [1.0, 2.0, 3.0, 150.0]
        found = {"service": {**cell(), "own_ms": own}, "ends": [{"said": "error 700", "seconds": seconds} for seconds in (0.25, 1.5)]}
        text = promises.BENCH.page(results(starts=found))
        self.assertIn("2 programs, of 0.25 to 1.50 s; requests of more than 1.6 times the median: 2, 1.0 a program, the longest 3.0 ms", text)

    def test_the_bound_says_what_either_has(self):
        text = promises.BENCH.page(results(bound={"solo": 10.0, "rate": 0.5, "alone_per_second": 1000, "beside_per_second": 900}))
        self.assertIn("1000 alone, 900 beside the training; training, of solo: 0.050", text)

    def test_a_second_start_says_where_the_program_was_put(self):
        slow = {**cell(3.0), "latencies_ms": [6.0] * 100}
        row = {"alone": {**cell(1.0), "latencies_ms": [2.0] * 100}, "beside": slow, "rate": 3.0, "solo": 6.0, "domains": ["mixed:0"], "has_long_blocks": True}
        text = promises.BENCH.page(results(again=[row, {**row, "domains": ["long-blocks-1"], "has_long_blocks": False}]))
        self.assertIn("| 1 | mixed:0 | yes | 1.000, 3.000 | 2.000, 6.000 | 0.500 |", text)
        self.assertIn("| 2 | long-blocks-1 | no |", text)


class Problems(unittest.TestCase):
    def test_wrong_outputs_are_one_wherever_they_were(self):
        rows = [{"kind": "nobody", "service": cell(), "ends": []}, {"kind": "trap", "service": cell(wrong=2), "ends": []}]
        first = objective(None, 1.2, 3)
        first["alone"]["wrong"] = 1
        self.assertEqual(promises.BENCH.problems(results(faults=rows, objectives=[first])),
                         ["faults, a room: 2 wrong outputs", "objectives, a room: 1 wrong outputs"])
        self.assertEqual(promises.BENCH.problems(results(faults=rows[:1], bound={})), [])


class Place:
    """Its programs print a line and then, if they are to, do not end."""

    def __init__(self, text, ends):
        self.words = [sys.executable, "-c", f"import time; print({text!r}, flush=True); time.sleep({0 if ends else 60})"]

    def command(self, words, role):  # pylint: disable=unused-argument
        return self.words


class Faults(unittest.TestCase):
    def run_some(self, kind, place):
        faults = promises.Faults(place, kind)
        faults.start()
        while not faults.ends:
            faults.join(0.05)
        faults.stop()
        return faults.ends

    def test_the_last_line_is_how_one_ended(self):
        ends = self.run_some("trap", Place("there\nerror 719", ends=True))
        self.assertEqual({end["said"] for end in ends}, {"error 719"})

    def test_one_that_is_endless_is_killed_in_time_for_the_next(self):
        ends = self.run_some("endless", Place("there", ends=False))
        self.assertEqual({end["said"] for end in ends}, {"killed"})
        self.assertLess(ends[0]["seconds"], 20)


class Options(unittest.TestCase):
    def test_parts_and_pairs_that_are_none_are_refused(self):
        for words in (["--parts", "wishes"], ["--pair", "bert-graph"], ["--pair", "whisper:bert-graph"]):
            with self.assertRaises(SystemExit):
                promises.BENCH.read_options(words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
