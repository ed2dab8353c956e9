#!/usr/bin/env python3
"""Programs whose launches are gathered in windows, on a software GPU that takes work in any order: who is killed, what
faults, what is refused concerns nobody else, and is told as it would be without a window."""
import os
import re
import sys
import time
import unittest

from support.daemon_fixture import free_port, wait_until
from support.full_stack import FullStackTest, not_built
from support.window import HOSTILE_GPU, LAUNCHES_ARE_HELD, ON, SHADOW, assert_launches_were_in_graphs

CASE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "window_case.py")
ILLEGAL_ADDRESS = 700
MISSING = not_built()


class Window(FullStackTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.start_daemon(env=HOSTILE_GPU, metrics=f"127.0.0.1:{self.port}")

    def start(self, *arguments, window=ON, **options):
        return self.start_under_tally(sys.executable, CASE, *arguments, env=window, **options)

    def output_of(self, run):
        output, _ = run.communicate(timeout=100)
        self.assertEqual(run.returncode, 0, output.decode())
        return output.decode()

    def pids(self):
        return {row["pid"] for row in self.ctl_json("ps")}

    def test_right_words_in_each_mode(self):
        for window in ({"TALLY_WINDOW": "off"}, SHADOW, ON):
            for priority in ("best-effort", "high"):
                self.assert_right_words(self.start("checked", "60", window=window, priority=priority))
        assert_launches_were_in_graphs(self, self.scrape_at_rest(self.port), 100)

    def test_declared_launches_are_held(self):
        """Of 17 launches a step 12 are of a kernel that would be a barrier, but for what they declare."""
        self.assert_right_words(self.start("declared", "60"))
        page = self.scrape_at_rest(self.port)
        held, transfers = (sum(map(float, re.findall(rf"^{name}_total\{{[^}}]*\}} (\S+)$", page, re.MULTILINE)))
                           for name in ("tally_tenant_window_held", "tally_tenant_window_transfers"))
        self.assertEqual(held - transfers, 60 * 17)

    def assert_right_words(self, run):
        self.assertEqual(self.output_of(run), "OK\n")

    def test_killed_in_mid_window(self):
        survivor = self.start("forever")
        self.assertEqual(survivor.stdout.readline(), b"launching\n")
        (executor,) = {row["executor_pid"] for row in self.ctl_json("ps")}
        for pause in (0.05, 0.1, 0.0, 0.02):
            victim = self.start("forever")
            self.assertEqual(victim.stdout.readline(), b"launching\n")
            time.sleep(pause)
            checked = self.start("checked", "60")
            victim.kill()
            self.assert_right_words(checked)
            wait_until(lambda: self.pids() == {survivor.pid}, "only the survivor is left")
        self.assertEqual({row["executor_pid"] for row in self.ctl_json("ps")}, {executor})
        self.assertIsNone(survivor.poll())

    def test_killed_with_launches_that_nobody_asked_for(self):
        victim = self.start("launched_and_left")
        self.assertEqual(victim.stdout.readline(), b"launched\n")
        victim.kill()
        wait_until(lambda: self.pids() == set(), "its session has ended")
        self.assert_right_words(self.start("checked", "60"))

    def test_fault_in_mid_window(self):
        """Of that domain it is everybody's, as in one context; of others nobody's."""
        other = self.start("checked", "2000", priority="high")
        faulty = self.start("faulty", "30")
        self.assertEqual(self.output_of(faulty), f"{ILLEGAL_ADDRESS} {ILLEGAL_ADDRESS} {ILLEGAL_ADDRESS}\n")
        self.assert_right_words(other)
        self.assert_right_words(self.start("checked", "60"))

    def test_refused_launches(self):
        said = [self.output_of(self.start("refused", "40", window=window)) for window in ({"TALLY_WINDOW": "off"}, ON)]
        self.assertEqual(said[0], said[1])
        self.assertTrue(said[1].endswith(" 0 True\n"), said[1])

    def test_tallyctl_shows_the_session(self):
        if "no command" in self.ctl("window").stderr:
            self.skipTest("tallyctl has no such command")
        run = self.start("forever")
        self.assertEqual(run.stdout.readline(), b"launching\n")
        shadowed = self.start("forever", window=SHADOW)
        self.assertEqual(shadowed.stdout.readline(), b"launching\n")
        rows = {row["mode"]: row for row in self.ctl_json("window")}
        self.assertEqual(set(rows), {"on", "shadow"})
        if LAUNCHES_ARE_HELD:
            wait_until(lambda: self.figure("on", "in_graphs") > 0, "launches are in graphs")
            wait_until(lambda: self.figure("shadow", "work") > self.figure("shadow", "chain") > 0, "chains are seen")
            self.assertEqual(self.figure("shadow", "held"), 0)

    def figure(self, mode, name):
        return next(row[name] for row in self.ctl_json("window") if row["mode"] == mode)


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
