#!/usr/bin/env python3
"""The smoke of tools/soak: clients of all kinds for 20 seconds."""
import os
import sys
import unittest

from support.full_stack import PROGRAMS, FullStackTest, not_built
from support.soak import SOAK_PROGRAMS, Soak, is_flat

MISSING = not_built(*(os.path.join(PROGRAMS, name) for name in SOAK_PROGRAMS))
SECONDS, SECONDS_BETWEEN_RESTS, PAUSE_SECONDS = 20, 2, 5


class Smoke(FullStackTest):
    def test_all_results_are_right_and_nothing_grows(self):
        soak = Soak(self, PAUSE_SECONDS, seed=22)
        soak.run(SECONDS, SECONDS_BETWEEN_RESTS)
        print(soak.counts)
        self.assertEqual(soak.wrong, [])
        for kind in ("program", "worker", "killed", "control"):
            self.assertGreater(soak.counts.get(kind, 0), 5, soak.counts)
        grown = [row for row in soak.growth() if not is_flat(*row[1:])]
        self.assertEqual(grown, [], soak.growth())


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
