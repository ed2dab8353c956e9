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


if __name__ == "__main__":
    unittest.main()
