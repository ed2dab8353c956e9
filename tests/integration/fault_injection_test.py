#!/usr/bin/env python3
"""The short form of tools/fault-injection: each function of the driver that executors call fails once."""
import contextlib
import io
import random
import sys
import unittest

from support.fault_cases import INSTEAD, Case
from support.fault_rig import FAULT_DRIVER, RECORDING_CLIENT, Rig
from support.fault_runs import SHORT_PROGRAMS, Report, run_short
from support.full_stack import PROGRAMS, not_built

MISSING = not_built(FAULT_DRIVER, RECORDING_CLIENT, *(f"{PROGRAMS}/{name}" for name in SHORT_PROGRAMS))
NUM_FUNCTIONS = 195  # at least: 207 were called when this was written


class FaultInjection(unittest.TestCase):
    def test_each_function_fails_once(self):
        report, said = Report(), io.StringIO()
        with Rig() as rig, Rig() as rig_of_losses, contextlib.redirect_stdout(said):
            run_short((rig, rig_of_losses), random.Random(22), report)
            status = report.finish()
        print(said.getvalue())
        self.assertEqual(status, 0, said.getvalue())
        self.assertGreaterEqual(len({case.function for case, outcome in report.rows}), NUM_FUNCTIONS)


class Rigs(unittest.TestCase):
    def test_a_driver_that_forgets_is_noticed(self):
        """Of a fault whose object stays in the driver: the rig must see what is left."""
        with Rig() as rig:
            outcome = rig.carry_out(Case("reduction", "cuMemFree_v2", 1, 1, INSTEAD))
        self.assertRegex(outcome.verdict, r"^left .*memory-ranges")


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
