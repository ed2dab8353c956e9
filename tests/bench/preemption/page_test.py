"""What bench/preemption says is wrong: a result that differs must not pass."""
import unittest

import page


def row(forms, requests=None):
    return {"kernel": "k", "forms": forms, "requests": requests or {}}


def kernel(name, launches, grid=1):
    return {"name": name, "executor_pid": 1, "grid": [grid, 1, 1], "block": [32, 1, 1], "shared_bytes": 0, "launches": launches}


class Problems(unittest.TestCase):
    def test_equal_results_are_no_problem(self):
        self.assertEqual(page.problems([row({"native": {"digest": "a"}, "slices:4": {"digest": "a"}})]), [])

    def test_another_result_is(self):
        found = page.problems([row({"native": {"digest": "a"}, "slices:4": {"digest": "b"}})])
        self.assertEqual(found, ["k: slices:4: other results"])

    def test_without_a_gpu_the_original_counts(self):
        found = page.problems([row({"original": {"digest": "a"}, "workers:1": {"digest": "b"}})])
        self.assertEqual(found, ["k: workers:1: other results"])

    def test_launches_beside_requests_are_compared_among_themselves(self):
        self.assertEqual(page.problems([row({"native": {"digest": "a"}}, {"native": {"digest": "c"}, "chosen": {"digest": "c"}})]), [])
        self.assertEqual(page.problems([row({}, {"native": {"digest": "c"}, "chosen": {"digest": "a"}})]),
                         ["k: chosen: other results"])

    def test_what_failed_is(self):
        self.assertEqual(page.problems([row({"native": {"failed": "no GPU"}})]), ["k: native: no GPU"])


class MostLaunched(unittest.TestCase):
    def test_counts_what_came_in_between(self):
        before = [kernel("often", 1000), kernel("now", 10)]
        after = [kernel("often", 1001), kernel("now", 30), kernel("once", 1)]
        self.assertEqual(page.most_launched(before, after)["name"], "now")

    def test_tells_shapes_apart(self):
        self.assertEqual(page.most_launched([kernel("k", 5, grid=1)], [kernel("k", 5, grid=1), kernel("k", 2, grid=9)])["grid"][0], 9)

    def test_nothing_launched_is_nothing(self):
        self.assertEqual(page.most_launched([kernel("k", 5)], [kernel("k", 5)]), {})


class RequestsTable(unittest.TestCase):
    def test_says_how_many_came_late_and_where_the_time_went(self):
        run = {"latencies": [10.0] * 98 + [60.0, 70.0], "us": 300.0, "digest": "a",
               "report": {"form": "workers(264)", "turnaround_ns": 21_000, "is_turnaround_measured": True, "remark": ""},
               "figures": {"timed_yields": 4, "yield_seen_ns": 4_000, "yield_written_ns": 8_000, "yield_left_ns": 40_000}}
        told = {"latencies": [10.0] * 100, "us": 200.0, "digest": "a", "report": {}, "figures": {}}
        rows = [{"kernel": "k", "us": 200.0, "forms": {}, "requests": {"native": told, "workers": run, "slices": {"failed": "x"}}}]
        alone = {"native": [10.0], "workers": [10.0], "slices": [10.0]}
        lines = page._requests_table(rows, alone, 31.6)  # pylint: disable=protected-access
        self.assertIn("| k | workers | 10.0 / 70.0 / 70.0 | 2.0% | 60.0 **over** | workers(264) | 1.50 | 21.0 | "
                      "1.0 + 2.0 + 10.0 us (4) |  |", lines)
        self.assertIn("| k | native | 10.0 / 10.0 / 10.0 | 0.0% | 0.0 | - | 1.00 | - | - |  |", lines)
        self.assertTrue(any(line.startswith("| k | slices | failed |") for line in lines))


if __name__ == "__main__":
    unittest.main()
