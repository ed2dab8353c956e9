"""The page of bench/colocation: wrong outputs and what was not measured must show."""
import csv
import os
import tempfile
import unittest

import measures
import page
from measures_test import record


def results(cells, digests=None, smoke=False):
    return {"smoke": smoke, "machine": {"GPU": "none"}, "command": "c", "seconds": 4, "trace": "bursty", "loads": [0.5], "capacity": {"s": 100.0},
            "digests": digests or {}, "tallyds": {}, "workers": {}, "cells": cells}


def cells():
    return [record("alone", lambda index: 2), record("alone", None, service="", training="t", rates=[10], load=0, count=1),
            record("tally", lambda index: 3, training="t", rates=[4], count=1)]


class PageTest(unittest.TestCase):
    def page(self, found):
        return page.markdown(found, measures.Results(found["cells"]).rows())

    def test_numbers(self):
        found = [*cells(), record("tally", lambda index: 2.5)]
        for made in found:
            made["gpu_us"] = [1000.0] * len(made.get("latencies_ms", ()))
        text = self.page(results(found))
        once = [f"{value} ({value} to {value})" for value in ("+20.0 %", "+50.0 %", "+20.0 %", "+50.0 %", "0.05", "0.40", "0.42")]
        self.assertIn(f"| tally | 1 | {' | '.join(once)} |", text)
        self.assertIn("all as they should be", text)
        self.assertNotIn("Smoke run", text)
        self.assertIn("Smoke run", self.page(results(cells(), smoke=True)))

    def test_pairs_are_summed_up_by_the_median_with_the_range(self):
        """A mean would say that each pair is hurt: one is, by a factor of 60."""
        found = []
        for index, latency in enumerate((2.0, 2.2, 124.0)):
            found += [record("alone", lambda index: 2, service=f"s{index}"),
                      record("tally", lambda index, latency=latency: latency, service=f"s{index}", training="t", rates=[4], count=1)]
        self.assertIn("| tally | 3 | - | +10.0 % (+0.0 % to +6100.0 %) | - | +10.0 % (+0.0 % to +6100.0 %) | - | - | - |", self.page(results(found)))

    def test_what_a_mode_costs_with_nothing_beside(self):
        text = self.page(results([*cells(), record("tally", lambda index: 2.02)]))
        self.assertIn("| s | tally | 2.020 / 2.020 | +1.0 % | +1.0 % | +1.0 % to +1.0 % |", text)
        self.assertNotIn("## Alone under each mode", self.page(results(cells())))

    def test_what_a_mode_costs_a_training(self):
        def training(mode, rate, repetition):
            return record(mode, None, service="", training="t", rates=[rate], load=0, count=1, repetition=repetition)

        found = [training("alone", 10, 0), training("alone", 12, 0), training("tally", 10.78, 0), training("alone", 20, 1), training("tally", 20, 1),
                 training("tally", 5, 2)]
        self.assertIn("| t | tally | 0.9900 | 0.9800 to 1.0000 | 2 |", self.page(results(found)))
        self.assertNotIn("idle service", self.page(results(cells())))

    def test_first_kernels(self):
        found = cells()
        for made, wait in ((found[0], 10.0), (found[2], 180.0)):
            made.update({"waits_us": [wait] * len(made["latencies_ms"]), "clock_error_us": 3.0})
        self.assertIn("| s | 50% | 1 x t | tally | 180.0 / 180.0 / 180.0 / 180.0 | 10.0 / 10.0 | 0.0% | 100.0% | 0.0% | 0.0% | ",
                      self.page(results(found)))
        self.assertNotIn("first kernel", self.page(results(cells())))

    def test_wrong_outputs_show(self):
        wrong = cells()
        wrong[2]["wrong"] = 3
        self.assertIn("3 requests with other outputs", self.page(results(wrong)))
        self.assertEqual(len(page.problems(results(wrong))), 1)

    def test_other_digests_show(self):
        digests = {"native|service|s": ["a"], "tally|service|s": ["b"], "native|training|t": ["c"], "tally|training|t": ["d"]}
        found = results(cells(), digests)
        self.assertEqual(len(page.problems(found)), 1)
        self.assertIn("tally: s: outputs b, natively a", self.page(found))
        self.assertIn("t: differs: c, d", self.page(found))

    def test_what_was_not_measured_shows(self):
        failed = {**record("mps", lambda index: 9, training="t", count=1), "status": "failed", "reason": "no MPS here"}
        self.assertIn("* mps: s beside 1 t: no MPS here", self.page(results([*cells(), failed])))

    def test_whether_contexts_were_suspended(self):
        found = results([])
        executor = {"domain": "best-effort:0", "class": "best-effort", "driver": "CUDA driver 13.0", "suspension": "on", "num_suspensions": 12}
        mode = "tally:look-ahead+suspended"
        found["tallyds"] = {mode: {"kernels": [], "executors": [executor, {**executor, "class": "high", "domain": "high:0", "suspension": "off"}]}}
        self.assertIn(f"Descheduling of best-effort contexts: {mode}: best-effort:0 on, 12 times.", page.markdown(found, []))
        self.assertEqual(page.problems(found), [])
        off = {"executors": [{**executor, "suspension": "off"}]}
        found["tallyds"] = {mode: off, "tally": off, "tally+gates+shared": off, "tally:none": off, "tally/0": off}
        self.assertEqual(page.problems(found), [f"{mode}: best-effort:0 did not deschedule its contexts, though the mode is to"])
        found["tallyds"] = {mode: {"executors": [{**executor, "driver": "software driver 13.0", "suspension": "off"}]}}
        self.assertEqual(page.problems(found), [])

    def test_kernels_of_modes_with_transforms(self):
        kernel = {"name": "k", "gpu_time_ns": 3000, "launches": 3, "duration_ns": 1000, "original_duration_ns": 800, "form": "workers:2", "turnaround_ns": 500,
                  "is_turnaround_measured": True, "remark": ""}
        found = results(cells())
        found["tallyds"] = {"tally": {"kernels": [kernel]}, "tally+transforms": {"kernels": [kernel]}}
        text = self.page(found)
        self.assertEqual(text.count("| `k` | 100.0% | 3 | 1.0 | 0.8 | workers:2 | 0.5 |  |"), 1)
        self.assertIn("tally+transforms: +25.00% over the originals, by launches of 1 kernels", text)

    def test_nothing_measured_is_a_page(self):
        self.assertIn("0 cells", self.page(results([])))

    def test_csv(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "x.csv")
            page.write_csv(measures.Results(cells()).rows(), path)
            with open(path, encoding="utf-8") as text:
                rows = list(csv.DictReader(text))
        self.assertEqual([row["mode"] for row in rows], ["alone", "tally"])
        self.assertEqual(float(rows[1]["p99_overhead"]), 0.5)


if __name__ == "__main__":
    unittest.main()
