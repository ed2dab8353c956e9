"""bench/colocation/company.py: what its page says of numbers, and to which second things belong."""
import os
import tempfile
import unittest

import bursts_plot
import company


def cell(latencies, unserved=0, wrong=0):
    return {"own_ms": [latency / 2 for latency in latencies], "latencies_ms": list(latencies), "unserved": unserved, "wrong": wrong}


def sample(when, hit, held_ns):
    return {"when": when, "gaps_hit": hit, "gaps_late": 2 * hit, "gaps_by_rule": 0, "gaps_by_guard": 1, "gap_hold_ns": held_ns, "prefers_holding": 1}


def results(**parts):
    return {"machine": {"GPU": "g", "what": "w", "when": "now"}, "service": "s", "training": "t", "smoke": False, "failures": [],
            "parts": {name: {"a room": found} for name, found in parts.items()}}


def bursts():
    return {"arrivals": [0.1, 0.9, 1.5], "capacity": 10, "alone": cell([1, 2, 3]), "beside": cell([4, 5, 6]), "training": [0.5, 0.25, 1.0], "solo": 2.0,
            "said": [sample(-0.2, 10, 0), sample(0.9, 15, 2_000_000), sample(1.9, 16, 5_000_000)]}


class Page(unittest.TestCase):
    def test_services_are_compared_with_the_first_alone_and_all_that_were_served_count(self):
        rows = [{"count": 1, "per_second": 50.0, "service": cell([1.0] * 100), "others": [], "served_per_second": 50.0},
                {"count": 2, "per_second": 50.0, "service": cell([2.0] * 100), "others": [cell([4.0] * 90, unserved=10)], "served_per_second": 95.0}]
        text = company.BENCH.page(results(services=rows))
        self.assertIn("| 1 | 0.500, 0.500 | 1.000 | 1.000 | 1.000 | 50 | - | 0 |", text)
        self.assertIn("| 2 | 1.000, 1.000 | 2.000 | 2.000 | 2.000 | 95 | 2.000 | 10 |", text)

    def test_shares_of_trainings_are_held_against_their_weights(self):
        one = cell([2.0] * 100)
        found = {"alone": [one, one], "both": [one, cell([4.0] * 100)], "all": [one, cell([6.0] * 100, unserved=3)], "rates": [1, 2, 3],
                 "rates_among": [1, 2, 4], "solo": 10}
        text = company.BENCH.page(results(levels=found))
        self.assertIn("| 0 | 1.000, 2.000, 3.000 | 2.000, 4.000, 6.000 | 0, 0, 3 |", text)
        self.assertIn("| 100 | 0.100 | 0.167 | 0.100 | 0.143 | 0.143 |", text)
        self.assertIn("| 400 | 0.300 | 0.500 | 0.400 | 0.571 | 0.571 |", text)

    def test_a_second_has_its_requests_and_what_was_decided_since_the_sample_before_it(self):
        rows = company.by_second(bursts())
        self.assertEqual([row["offered"] for row in rows], [0.2, 0.1, 0.0])
        self.assertEqual([(row["alone"], row["beside"]) for row in rows], [(2, 5), (3, 6), (None, None)])
        self.assertEqual(rows[0]["gaps"], {"gaps_hit": 5, "gaps_late": 10, "gaps_by_rule": 0, "gaps_by_guard": 0, "gap_hold_ns": 2_000_000})
        self.assertEqual(rows[1]["gaps"]["gap_hold_ns"], 3_000_000)
        text = company.BENCH.page(results(bursts=bursts()))
        self.assertIn("The training alone: 2.00 steps a second.", text)
        self.assertIn("| 0 | 20% | 2.00, 5.00 | 0.50 | 5, 10, 0, 0 | 2 |", text)
        self.assertIn("| 2 | 0% | -, - | 1.00 | 0, 0, 0, 0 | 0 |", text)

    def test_where_nobody_said_anything_of_gaps_the_row_says_so(self):
        self.assertIn("| 1 | 10% | 3.00, 6.00 | 0.25 | - | - |", company.BENCH.page(results(bursts={**bursts(), "said": []})))


class Problems(unittest.TestCase):
    def test_a_wrong_output_of_a_best_effort_service_is_one(self):
        row = {"count": 2, "per_second": 1, "service": cell([1]), "others": [cell([1], wrong=1)], "served_per_second": 1}
        self.assertEqual(company.BENCH.problems(results(services=[row])), ["services, a room: 1 wrong outputs"])


class Csv(unittest.TestCase):
    def lines(self, found):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "bursts.csv")
            bursts_plot.write_csv(results(bursts=found), path)
            with open(path, encoding="utf-8", newline="") as text:
                return text.read().split("\n")

    def test_a_second_is_a_line_as_on_the_page_and_what_nobody_said_is_empty(self):
        header, first, _, last, _ = self.lines(bursts())
        self.assertEqual(header, "room,second,offered,p99_alone_ms,p99_beside_ms,steps_per_second,gaps_hit,gaps_late,gaps_by_rule,gaps_by_guard,held_ms")
        self.assertEqual(first, "a room,0,0.2,2,5,0.5,5,10,0,0,2.0")
        self.assertEqual(last, "a room,2,0.0,,,1.0,0,0,0,0,0.0")
        self.assertEqual(self.lines({**bursts(), "said": []})[1], "a room,0,0.2,2,5,0.5,,,,,")


class Plot(unittest.TestCase):
    def test_it_is_drawn_with_and_without_what_was_decided(self):
        try:
            import matplotlib  # pylint: disable=unused-import
        except ImportError:
            self.skipTest("matplotlib is not here")
        with tempfile.TemporaryDirectory() as directory:
            for number, said in enumerate((bursts()["said"], [])):
                path = os.path.join(directory, f"{number}.svg")
                bursts_plot.draw(results(bursts={**bursts(), "said": said}), path)
                with open(path, encoding="utf-8") as text:
                    self.assertIn("<svg", text.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
