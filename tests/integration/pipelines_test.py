#!/usr/bin/env python3
"""Pipelines beside high-priority work, on the software driver: stopped between tiles, and the same bits as alone."""
import os
import re
import subprocess
import sys
import time
import unittest

from support.full_stack import BUILD, FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
ROUNDS = [os.path.join(BUILD, "tests", "pipelines_chains_test"), "--gtest_filter=*RoundsOnTheirOwnResults*"]
SIM = os.path.join(BUILD, "tests", "pipelines", "native_sim")
KERNELS = {"TALLY_PIPELINES_CACHE": os.path.join(BUILD, "tests", "pipelines", "kernels")}
MISSING = not_built(ROUNDS[0], SIM)


def digests(output):
    return re.findall(r"^digest: (\w+) ([0-9a-f]{16})$", output, re.MULTILINE)


class Pipelines(FullStackTest):
    @classmethod
    def setUpClass(cls):
        run = subprocess.run(ROUNDS, env={**os.environ, **KERNELS, "LD_LIBRARY_PATH": SIM}, stdout=subprocess.PIPE,
                             check=True, text=True)
        cls.undisturbed = digests(run.stdout)

    def start_rounds(self, priority="best-effort"):
        return self.start_under_tally(*ROUNDS, priority=priority, env=KERNELS)

    def assert_as_undisturbed(self, run):
        output = run.communicate(timeout=200)[0].decode()
        self.assertEqual(run.returncode, 0, output)
        self.assertEqual(digests(output), self.undisturbed)
        self.assertEqual([name for name, _ in self.undisturbed], ["resident", "streamed", "wide"])

    def run_beside_requests(self, count):
        """So many programs at once. Whether a launch of one of them was stopped in the middle of its tiles, as far as one sees."""
        low = [self.start_rounds() for _ in range(count)]
        seen, is_stopped_within = {}, False
        while any(run.poll() is None for run in low):
            for row in self.ctl_json("ps"):
                if row["class"] != "best-effort":
                    continue
                launches, blocks = row["resumed_launches"], row["resumed_blocks"]
                before = seen.get(row["id"], (0, 0, 0))
                seen[row["id"]] = (launches, blocks, row["yields"])
                # The software GPU has 16 multiprocessors, and a pipeline's own grid no more blocks.
                is_stopped_within |= blocks - before[1] > 16 * (launches - before[0])
            time.sleep(0.01)
        for run in low:
            self.assert_as_undisturbed(run)
        self.assertEqual(len(seen), count)
        return is_stopped_within and all(yields > 3 for _, _, yields in seen.values())

    def stop_and_check(self, count, *options, **env):
        self.start_daemon("--transforms", "gate", *options, env=env)
        self.start_under_tally(sys.executable, CASES, "requests", "1000", "5", priority="high")
        # When requests come is chance: those of one run may all meet launches of a row.
        self.assertTrue(any(self.run_beside_requests(count) for _ in range(5)), "never stopped between its tiles")

    # Both ways to a gate, as in gated_test.py, and with the threads of a block in another order.
    def test_they_are_stopped_between_tiles(self):
        self.stop_and_check(1, TALLY_FORCE_FORM="gated:1", TALLY_SIM_SCHEDULE="1")

    def test_they_are_stopped_between_tiles_in_one_context(self):
        self.stop_and_check(2, "--share-contexts", TALLY_FORCE_FORM="spliced:1", TALLY_SIM_SCHEDULE="2")

    def test_those_of_high_priority_run_as_they_are(self):
        self.start_daemon("--transforms", "gate", env={"TALLY_FORCE_FORM": "gated:1"})
        self.assert_as_undisturbed(self.start_rounds(priority="high"))
        self.assertEqual(self.ctl_json("kernels"), [])


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
