#!/usr/bin/env python3
"""Who gets how much under a policy, on the software driver. Numbers of launches: nothing else should run meanwhile."""
import time
import unittest

from support.daemon_fixture import is_alive, wait_until
from support.policies import MISSING, SharingTest


class Shares(SharingTest):
    def assert_shared(self, least, most, *names):
        """Within some seconds the second gets `least` to `most` times what the first gets. Another try if not: the
        machine may be busy with something else."""
        for _ in range(4):
            first, second = self.launches_within(4, *names)
            if least * first <= second <= most * first:
                return
        self.fail(f"{names}: {first} and {second} launches")

    def test_weights_decide_and_may_change(self):
        self.start_daemon("--policy", "tally")
        self.forever("one", "--weight", "100")
        self.forever("three", "--weight", "300")
        wait_until(lambda: all(self.rows().get(name, {}).get("kernel_launches", 0) > 500 for name in ("one", "three")),
                   "both run")
        self.assertEqual([self.rows()[name]["weight"] for name in ("one", "three")], [100, 300])
        self.assert_shared(1.8, 5, "one", "three")
        self.assertEqual(self.ctl("set-weight", str(self.rows()["one"]["id"]), "900").returncode, 0)
        self.assert_shared(1.8, 5, "three", "one")

    def test_a_higher_level_comes_first(self):
        self.start_daemon("--policy", "tally")
        self.forever("top", "--level", "5", priority="high")
        self.forever("low", "--level", "1", priority="high")
        wait_until(lambda: all(self.rows().get(name, {}).get("requests", 0) > 10 for name in ("low", "top")),
                   "both are there")
        self.assert_shared(3, 1e9, "low", "top")


class StarvationBound(SharingTest):
    """A best-effort program beside a high-priority one that never leaves the GPU idle."""
    BOUND = 0.25
    SECONDS = 5

    def launches(self, policy, *options):
        """Of the best-effort program, meanwhile."""
        daemon = self.start_daemon("--policy", policy, *options)
        victim = self.forever("victim")
        wait_until(lambda: self.rows().get("victim", {}).get("kernel_launches", 0) > 10, "it runs")
        service = self.start_busy_service()
        time.sleep(1)
        num_launches, = self.launches_within(self.SECONDS, "victim")
        for process in (victim, service):
            process.kill()
            process.wait()
        # Executors that still have programs would wait for the next tallyd, with the old bound.
        wait_until(lambda: not self.rows(), "the programs are gone")
        daemon.terminate()
        self.assertEqual(daemon.wait(60), 0, self.log_of(daemon))
        wait_until(lambda: not any(map(is_alive, self.noted_executors())), "the executors have ended")
        return num_launches

    def check(self, policy):
        """Another try if the numbers are wrong: on a machine with much else to do even a busy program has gaps."""
        for _ in range(3):
            unbounded = self.launches(policy, "--starvation-bound", "off")
            bounded = self.launches(policy, "--starvation-bound", f"{int(self.BOUND * 1000)}ms")
            bounds = self.SECONDS / self.BOUND
            # One per bound; it may have been a little late, or gone in a gap.
            if unbounded <= 1 and bounds / 3 <= bounded <= bounds * 1.5:
                return
        self.fail(f"{policy}: {unbounded} launches without a bound, {bounded} with one in {bounds} bounds")

    def test_look_ahead(self):
        self.check("look-ahead")

    def test_tally(self):
        self.check("tally")


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
