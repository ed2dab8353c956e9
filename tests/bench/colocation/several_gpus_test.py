"""Numbers of bench/colocation/several_gpus.py: each GPU's own, over that GPU alone."""
import contextlib
import io
import unittest

import several_gpus


def cell(mode, services, training, latencies=(), rate=None, wrong=0, **more):
    gpus = [{"latencies_ms": list(each), "own_ms": [], "unserved": 0, "wrong": wrong} for each in latencies]
    return {"mode": mode, "services": services, "training": training, "repetition": 0, "gpus": gpus, "rate": rate, **more}


def results(*cells, **more):
    return {"gpus": 2, "service": "s", "training": "t", "smoke": False, "failures": [], "digests": {}, "cells": list(cells), **more}


NATIVE = (cell("alone", True, False, ([1.0] * 100, [4.0] * 100)), cell("alone", False, True, rate=10.0))


class Rows(unittest.TestCase):
    def test_each_gpu_is_compared_with_itself(self):
        alone, shared = several_gpus.rows(results(*NATIVE, cell("tally", True, True, ([3.0] * 100, [4.0] * 100), 5.0)))
        self.assertEqual((alone["over_alone"], alone["of_solo"]), ([1, 1], 1))
        self.assertEqual((shared["p99_ms"], shared["over_alone"], shared["of_solo"]), ([3, 4], [3, 1], 0.5))

    def test_repetitions_are_one_sample(self):
        again = cell("tally", True, True, ([1.0] * 100, [9.0] * 100), 7.0)
        (*_, shared) = several_gpus.rows(results(*NATIVE, again, cell("tally", True, True, ([1.0] * 1000, [1.0] * 9900), 3.0)))
        self.assertEqual((shared["of_solo"], shared["p99_ms"][1]), (0.5, several_gpus.machine.quantile([1.0] * 9900 + [9.0] * 100, 0.99)))

    def test_a_mode_alone_has_its_own_row(self):
        under = (cell("tally alone", True, False, ([2.0] * 10, [4.0] * 10)), cell("tally alone", False, True, rate=9.0))
        (_, row) = several_gpus.rows(results(*NATIVE, *under))
        self.assertEqual((row["mode"], row["over_alone"], row["of_solo"]), ("tally alone", [2, 1], 0.9))

    def test_what_failed_has_no_numbers_and_is_named(self):
        found = results(*NATIVE, cell("tally", True, True, failed="hangs"), failures=["tally: hangs"])
        self.assertIn("| tally | -, - | -, - | - | 0 | 0 |", several_gpus.markdown(found))
        self.assertIn("* not measured: tally: hangs", several_gpus.markdown(found))
        self.assertEqual(several_gpus.problems(found), ["tally: hangs"])

    def test_wrong_outputs_and_other_digests_are_problems(self):
        found = results(*NATIVE, cell("tally", True, True, ([1.0], [1.0]), 1.0, wrong=1), digests={"training": {"native": "a", "tally": "b"}})
        self.assertEqual(len(several_gpus.problems(found)), 2)


class Options(unittest.TestCase):
    def refuses(self, *words):
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            several_gpus.read_options(["--json", "x", *words])

    def test_natively_alone_is_no_mode_to_ask_for(self):
        self.assertEqual(several_gpus.read_options(["--json", "x", "--modes", "alone,tally,tally"]).modes, ["tally"])

    def test_what_makes_no_sense_is_refused(self):
        self.refuses("--gpus", "1")
        self.refuses("--pair", "bert-graph:nothing")
        self.refuses("--load", "100")


if __name__ == "__main__":
    unittest.main()
