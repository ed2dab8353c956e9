#!/usr/bin/env python3
"""The smoke of tools/soak: clients of all kinds for 20 seconds."""
import os
import sys
import unittest

from support.daemon_fixture import wait_until
from support.full_stack import PROGRAMS, FullStackTest, not_built
from support.soak import HERE, SOAK_PROGRAMS, Soak, figures_of, is_flat

STAYS = f"import sys, time; sys.path.insert(0, {HERE!r}); from cuda_driver import Cuda; Cuda(); time.sleep(100)"
MISSING = not_built(*(os.path.join(PROGRAMS, name) for name in SOAK_PROGRAMS))
SECONDS, SECONDS_BETWEEN_RESTS, PAUSE_SECONDS = 20, 2, 5


class Threads(FullStackTest):
    def test_memory_of_programs_with_many_threads_goes_with_them(self):
        self.start_daemon()
        anchor = self.start_under_tally(sys.executable, "-c", STAYS)
        wait_until(lambda: self.ctl_json("ps"), "the executor serves")
        (executor,) = self.ctl_json("executors")
        for _ in range(9):
            self.assert_right(self.start_under_tally(os.path.join(PROGRAMS, "thread_contexts")))
        wait_until(lambda: len(self.ctl_json("ps")) == 1, "only the one that stays is left")
        self.assertIsNone(anchor.poll())
        wait_until(lambda: figures_of(executor["pid"])["pss_kib"] < 80 << 10, lambda: figures_of(executor["pid"]))


class Smoke(FullStackTest):
    def test_all_results_are_right_and_nothing_grows(self):
        soak = Soak(self, PAUSE_SECONDS, seed=22)
        is_enough = lambda: all(soak.counts.get(kind, 0) > 5 for kind in ("program", "worker", "killed", "control"))
        soak.run(SECONDS, SECONDS_BETWEEN_RESTS, lambda: is_enough() and soak.num_rests() >= 4)
        print(soak.counts)
        self.assertEqual(soak.wrong, [])
        self.assertTrue(is_enough(), soak.counts)
        grown = [row for row in soak.growth() if not is_flat(*row[1:])]
        self.assertEqual(grown, [], soak.growth())


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
