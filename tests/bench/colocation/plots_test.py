"""Plots of bench/colocation, from made-up numbers: every plot that can be made is, and looks at the right rows."""
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import unittest

import measures
import plan
import trace

PLOTS = os.path.join(os.path.dirname(os.path.abspath(plan.__file__)), "plots.py")
PAIR = ("bert-graph", "bert")
SLOWER = {"alone": 1, "time-slicing": 3, "tally": 1.1, "tally:none": 1.3, "tally+transforms@10": 1.05, "tally+transforms@100": 1.2}


def results():
    cells = []
    for cell in plan.Plan(tuple(SLOWER), (PAIR,), (0.5, 0.1), (1, 2), 1, (PAIR,), (PAIR,)).cells(list(SLOWER)):
        record = {**dataclasses.asdict(cell), "status": "done", "seconds": 2, "capacity": 100, "rates": [1.0] * cell.count, "wrong": 0,
                  "unserved": 0, "trace": "bursty", "burstiness": dataclasses.asdict(trace.KINDS["bursty"])}
        if cell.service:
            record["latencies_ms"] = [SLOWER[cell.mode] + index % 7 / 10 for index, _ in
                                      enumerate(trace.arrivals(2, cell.load, 100, measures.seed_of(record)))]
            record["waits_us"] = [10.0 + index % 50 for index, _ in enumerate(record["latencies_ms"])]
            record["clock_error_us"] = 3.0
        cells.append(record)
    return {"smoke": True, "machine": {}, "loads": [0.5], "cells": cells}


def python_with_matplotlib():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import matplotlib"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    raise AssertionError("no matplotlib: tools/setup installs python3-matplotlib")


class PlotsTest(unittest.TestCase):
    def plots_of(self, found):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "x.json")
            with open(path, "w", encoding="utf-8") as text:
                json.dump(found, text)
            subprocess.run([python_with_matplotlib(), PLOTS, path, os.path.join(directory, "plots")], check=True,
                           stdout=subprocess.DEVNULL, timeout=100)
            made = {}
            for name in os.listdir(os.path.join(directory, "plots")):
                with open(os.path.join(directory, "plots", name), encoding="utf-8") as text:
                    made[name] = text.read()
            return made

    def test_all(self):
        made = self.plots_of(results())
        self.assertEqual(sorted(made), ["ablation.svg", "first-kernel-bert-graph-bert.svg", "loads-bert-graph-bert.svg", "pairs.svg", "tenants-bert-graph-bert.svg",
                                        "thresholds.svg", "trace.svg"])
        for text in made.values():
            self.assertIn("<!-- SMOKE RUN, NO MEASUREMENT -->", text)
        self.assertIn("<!-- time-slicing -->", made["pairs.svg"])
        self.assertNotIn("<!-- time-slicing -->", made["ablation.svg"])

    def test_nothing_measured(self):
        self.assertEqual(self.plots_of({**results(), "cells": []}), {})


if __name__ == "__main__":
    unittest.main()
