#!/usr/bin/env python3
"""Best-effort kernels that are sliced and yield, on the software driver: the results stay the same, and people can see why."""
import os
import sys
import time
import unittest

from support.daemon_fixture import wait_until
from support.full_stack import REPEATED_LAUNCHES, FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MISSING = not_built(REPEATED_LAUNCHES)


class Variants(FullStackTest):
    def setUp(self):
        super().setUp()
        self.cache = os.path.join(self.directory, "cache")

    def start_here(self, *arguments):
        # Every kernel of the software driver is longer than that; slices of it and persistent blocks are not, as a
        # rule.
        if "--transforms" not in arguments:
            arguments = ("--transforms", "all", *arguments)
        self.start_daemon("--turnaround-us", "60", "--cache-directory", self.cache, *arguments)

    def start_program(self, priority="best-effort"):
        return self.start_under_tally(REPEATED_LAUNCHES, priority=priority)

    def forms(self):
        return {row["name"]: row["form"].split("(")[0] for row in self.ctl_json("kernels")}

    def run_until_variants_are_used(self):
        """Programs one after another until no kernel is left as it was, or has a reason to be."""
        for _ in range(20):
            self.assert_right(self.start_program())
            rows = self.ctl_json("kernels")
            if rows and all(row["form"] != "original" or row["remark"] not in
                            ("", "not measured yet", "variants are being compiled", "variants are being measured")
                            for row in rows):
                return rows
        self.fail(f"never settled: {rows}")

    def test_results_are_the_same_in_slices(self):
        self.start_here("--transforms", "slices")
        rows = self.run_until_variants_are_used()
        # However badly they are timed on a busy machine: not all slices take several times as long.
        self.assertGreaterEqual(sum(row["form"].startswith("slices") for row in rows), 2, rows)
        low = self.start_program()
        self.assert_right(self.start_program(priority="high"))
        self.assert_right(low)

    def test_results_are_the_same_while_kernels_yield(self):
        self.start_here("--transforms", "workers")
        rows = self.run_until_variants_are_used()
        self.assertEqual(len(rows), 4, rows)
        # One of them has fewer blocks than there would be persistent blocks. The others have ten times as many: however
        # badly they are timed on a busy machine, most are seen to come free earlier.
        self.assertGreaterEqual(sum(row["form"].startswith("workers") for row in rows), 2, rows)
        self.assertIn("TURNAROUND", self.ctl("kernels").stdout)
        # Best-effort work without a pause, however slow this machine is: high-priority work must meet some of it.
        deadline = time.monotonic() + 150
        low = [self.start_program(), self.start_program()]
        while time.monotonic() < deadline:
            self.assert_right(self.start_program(priority="high"))
            for number, run in enumerate(low):
                if run.poll() is not None:
                    self.assert_right(run)
                    low[number] = self.start_program()
            if any(row["is_turnaround_measured"] for row in self.ctl_json("kernels")):
                for run in low:
                    self.assert_right(run)
                return
        self.fail("no launch was ever asked to yield")

    def test_more_launches_at_once_than_persistent_blocks_can_be_counted_for(self):
        self.start_daemon("--transforms", "workers", "--cache-directory", self.cache,
                          env={"TALLY_FORCE_FORM": "workers:3"})
        # On a busy machine a program may launch so slowly that there are never too many at once, or end unseen.
        for _ in range(6):
            run = self.start_under_tally(sys.executable, CASES, "many", "10000", "100")
            num_launches = num_by_persistent_blocks = 0
            while run.poll() is None:
                for row in self.ctl_json("ps"):
                    if row["pid"] == run.pid:
                        num_launches, num_by_persistent_blocks = row["kernel_launches"], row["worker_launches"]
                time.sleep(0.02)
            output = run.stdout.read().decode()
            self.assertEqual((run.returncode, output.splitlines()[-1:]), (0, ["OK"]), output)
            if 1000 < num_by_persistent_blocks < num_launches == 10000:
                return
        self.fail(f"as seen last {num_by_persistent_blocks} of {num_launches} ran by persistent blocks")

    def test_what_was_learned_outlives_the_executor(self):
        self.start_here("--executor-idle-seconds", "2")
        self.run_until_variants_are_used()
        wait_until(lambda: not self.ctl_json("executors"), "the executor has ended", 60)
        self.session()  # the next one stays until it is asked
        self.assert_right(self.start_program())
        self.assertTrue(any(form != "original" for form in self.forms().values()), self.forms())

    def test_a_higher_threshold_brings_the_originals_back(self):
        self.start_here()
        self.run_until_variants_are_used()
        self.assertEqual(self.ctl("set-turnaround", "1000000").returncode, 0)
        self.assert_right(self.start_program())
        rows = self.ctl_json("kernels")
        self.assertTrue(all(row["turnaround_ns"] <= 1_000_000_000 for row in rows), rows)

    def test_a_program_may_have_a_threshold_of_its_own(self):
        self.start_here()
        patient = ("--turnaround-us", "1000000")
        self.assert_right(self.start_under_tally(REPEATED_LAUNCHES, options=patient))
        self.assertEqual(set(self.forms().values()), {"original"})
        self.run_until_variants_are_used()
        self.assertNotEqual(set(self.forms().values()), {"original"})
        # The others' measurements are shared, their threshold is not.
        deadline = time.monotonic() + 60
        is_shown = False
        while not is_shown:  # one that is over by the time of the first look says nothing
            self.assertLess(time.monotonic(), deadline, "it never showed in ps")
            run = self.start_under_tally(REPEATED_LAUNCHES, options=patient)
            while run.poll() is None and not is_shown:
                is_shown = any(row["turnaround_ns"] for row in self.ctl_json("ps"))
            self.assert_right(run)
        self.assertTrue(all(row["turnaround_ns"] <= 1_000_000_000 for row in self.ctl_json("kernels")))

    def test_a_program_may_keep_its_kernels(self):
        self.start_here()
        kept = self.start_under_tally(REPEATED_LAUNCHES, options=("--transforms", "none"))
        self.assert_right(kept)
        self.assertEqual(self.ctl_json("kernels"), [])
        self.assert_right(self.start_program())
        self.assertNotEqual(self.ctl_json("kernels"), [])

    def test_by_default_kernels_run_as_they_are(self):
        self.start_daemon("--turnaround-us", "1", "--cache-directory", self.cache)
        self.assert_right(self.start_program())
        self.assertEqual(self.ctl_json("kernels"), [])
        self.assertFalse(os.path.exists(self.cache))


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
