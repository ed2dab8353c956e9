#!/usr/bin/env python3
"""tallyctl top and ps on a terminal and without one, over real programs on the software GPU."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from support.daemon_fixture import BEST_EFFORT, HIGH, DaemonTest, program, wait_until
from support.full_stack import FullStackTest, not_built
from support.terminal import Terminal
from support.terminal_picture import svg_of

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MISSING = not_built()
ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


class OnATerminal:
    def top(self, *options, **how):
        terminal = Terminal(program("tallyctl"), "--socket", self.socket_path, "top", "--interval", "0.2", *options, **how)
        self.addCleanup(terminal.close)
        return terminal

    def weights(self):
        return {row["id"]: row["weight"] for row in self.ctl_json("ps")}

    def assert_given_back(self, terminal):
        self.assertEqual(terminal.modes(), terminal.modes_before)
        wait_until(lambda: LEAVE_SCREEN in terminal.written, "the other screen is left")
        self.assertEqual(terminal.written.count(ENTER_SCREEN), terminal.written.count(LEAVE_SCREEN))
        self.assertFalse(terminal.cursor_is_hidden())


class FullScreen(OnATerminal, DaemonTest):
    """With the scripted executor, which makes no figures: it is about the screen."""

    def setUp(self):
        super().setUp()
        self.start_daemon("--policy", "tally")

    def test_it_fits_80_columns_and_any_other_size(self):
        self.session(tenant="a-tenant-with-quite-a-long-name", priority=BEST_EFFORT)
        terminal = self.top()
        terminal.wait_for("a-tenant-w")
        terminal.wait_for("q quit")  # the last line: a terminal may get a page in pieces
        lines = terminal.lines()
        self.assertIn("tallyctl top - tallyd", lines[0])
        self.assertIn("q quit", lines[23])
        (header,) = [line for line in lines if "TENANT" in line]
        for word in ("SESSION", "CLASS", "BUSY%", "MEMORY", "LAUNCH/s", "HELD/s", "LATENCY"):
            self.assertIn(word, header)
        self.assertNotIn("AGE", header)
        terminal.type(" ")  # so that nothing but the change of size draws it again
        terminal.wait_for("PAUSED")
        terminal.resize(150, 40)
        terminal.wait_for("AGE")
        wait_until(lambda: "q quit" in terminal.lines()[39] and "launches/s" in terminal.text(), "all of it is drawn")
        terminal.resize(30, 6)
        wait_until(lambda: terminal.lines()[0].startswith("tallyctl top"), "it is drawn again")
        terminal.resize(1, 1)
        terminal.resize(80, 24)
        wait_until(lambda: "q quit" in terminal.lines()[23], "it survived")
        terminal.type("q")
        self.assertEqual(terminal.run.wait(30), 0)
        self.assert_given_back(terminal)

    def test_whatever_ends_it_the_terminal_is_as_it_was(self):
        for end, status in ((lambda t: t.type("q"), 0), (lambda t: t.type("\x03"), 0),
                            (lambda t: t.run.send_signal(signal.SIGTERM), -signal.SIGTERM),
                            (lambda t: t.run.send_signal(signal.SIGHUP), -signal.SIGHUP),
                            (lambda t: t.run.send_signal(signal.SIGQUIT), -signal.SIGQUIT),
                            (lambda t: t.run.send_signal(signal.SIGABRT), -signal.SIGABRT)):
            terminal = self.top()
            terminal.wait_for("q quit")
            self.assertNotEqual(terminal.modes(), terminal.modes_before)
            self.assertTrue(terminal.cursor_is_hidden())
            end(terminal)
            self.assertEqual(terminal.run.wait(30), status)
            self.assert_given_back(terminal)

    def test_control_z_gives_the_terminal_back_until_it_goes_on(self):
        terminal = self.top()
        terminal.wait_for("q quit")
        terminal.type("\x1a")
        os.waitid(os.P_PID, terminal.run.pid, os.WSTOPPED)
        self.assert_given_back(terminal)
        os.kill(terminal.run.pid, signal.SIGCONT)
        wait_until(lambda: terminal.written.count(ENTER_SCREEN) == 2, "it is back")
        terminal.wait_for("q quit")
        terminal.type("q")
        self.assertEqual(terminal.run.wait(30), 0)

    def test_keys_set_weight_and_class(self):
        first, second = self.session(tenant="first"), self.session(tenant="second")
        terminal = self.top("--sort", "session")
        terminal.wait_for("second")
        terminal.type("\x1b[Bw")
        terminal.wait_for(f"weight of session {second.id} (second), 1 to 10000")
        terminal.type("250\r")
        terminal.wait_for(f"session {second.id} has weight 250 now")
        self.assertEqual(self.weights(), {first.id: 100, second.id: 250})
        terminal.type("ph")
        terminal.wait_for(f"session {second.id} has class high now")
        self.assertEqual({row["id"]: row["class"] for row in self.ctl_json("ps")}, {first.id: "best-effort", second.id: "high"})
        terminal.type("w9\r")
        terminal.wait_for("level must be from 0 to 7")  # tallyd's own words
        terminal.type("w7\x1b")
        terminal.type("w6\r")
        terminal.wait_for(f"session {second.id} has level 6 now")

    def test_sort_tenants_pause_and_help(self):
        for tenant in ("zebra", "ant", "ant"):
            self.session(tenant=tenant)
        terminal = self.top("--sort", "tenant")
        order = lambda: re.findall("zebra|ant(?=  )", terminal.text())
        wait_until(lambda: order() == ["ant", "ant", "zebra"], "by name")
        terminal.type("r")
        wait_until(lambda: order() == ["zebra", "ant", "ant"], "the other way round")
        terminal.type("t")
        terminal.wait_for("2 of ant")
        terminal.type(" ")
        terminal.wait_for("PAUSED")
        self.session(tenant="late")
        terminal.type("h")
        terminal.wait_for("sort by the next column")
        terminal.type("h")
        terminal.wait_for("PAUSED")
        self.assertNotIn("late", terminal.text())
        terminal.type(" ")
        terminal.wait_for("late")

    def test_it_outlives_tallyd_and_finds_the_next(self):
        self.session(tenant="faithful")
        terminal = self.top()
        terminal.wait_for("faithful")
        self.daemons[0].kill()
        self.daemons[0].wait()
        terminal.wait_for("no tallyd answers")
        self.assertIn("faithful", terminal.text())
        self.start_daemon("--policy", "tally")
        wait_until(lambda: "no tallyd answers" not in terminal.text(), "it found the next one")
        terminal.wait_for("faithful")  # once its executor has been adopted

    def test_colors_only_where_they_are_wanted(self):
        self.session(tenant="service", priority=HIGH)
        self.session(tenant="chosen")
        for env, has_colors in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "vt100"}, False)):
            terminal = self.top("--sort", "tenant", env=env)
            terminal.wait_for("service")
            self.assertEqual(terminal.colors() != set(), has_colors, env)

    def test_a_terminal_that_shows_no_pages_is_one_sentence(self):
        for term in ("dumb", None):
            terminal = self.top(env={"TERM": term})
            self.assertEqual(terminal.run.wait(30), 1)
            wait_until(lambda: b"use --once or --snapshots" in terminal.written, "it says so")
            self.assertNotIn(ENTER_SCREEN, terminal.written)


class Snapshots(DaemonTest):
    def test_without_a_terminal_there_are_no_control_sequences(self):
        self.start_daemon()
        self.session(tenant="a" * 60, priority=HIGH)
        for options in ((), ("--once",), ("--snapshots", "2")):
            result = self.ctl("top", "--interval", "0.1", *options)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertRegex(result.stdout, r"^[\n -~]+$")
            self.assertEqual(result.stdout.count("a" * 60), 2 if options == ("--snapshots", "2") else 1)
            self.assertIn("AGE", result.stdout)  # every column

    def test_on_a_terminal_a_snapshot_is_as_wide_as_that_and_plain(self):
        self.start_daemon()
        self.session(tenant="a" * 60)
        terminal = Terminal(program("tallyctl"), "--socket", self.socket_path, "top", "--once", "--interval", "0.1", columns=70)
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.run.wait(30), 0)
        terminal.wait_for("aaaaaaaa")
        self.assertNotIn(b"\x1b", terminal.written)
        self.assertLessEqual(max(map(len, terminal.written.decode().split("\r\n"))), 70)

    def test_no_daemon_and_wrong_usage_are_one_sentence(self):
        result = self.ctl("top", "--once")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, r"^tallyctl: no tallyd serves '.*'.*\n$")
        for wrong in (("--interval", "0"), ("--snapshots", "0"), ("--snapshots", "-1"), ("--sort", "magic"),
                      ("--interval", "soon"), ("--once", "--snapshots", "2")):
            result = self.ctl("top", *wrong)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)

    def test_a_log_that_is_full_ends_it(self):
        self.start_daemon()
        with open("/dev/full", "wb") as full:
            result = subprocess.run([program("tallyctl"), "--socket", self.socket_path, "top", "--snapshots", "1000",
                                     "--interval", "0.1"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"cannot be written", result.stderr)


class Ps(DaemonTest):
    def test_on_a_terminal_it_is_as_wide_as_that(self):
        self.start_daemon()
        self.session(tenant="a" * 60)
        for options, columns, fits in (((), 80, True), ((), 40, True), (("--wide",), 80, False)):
            terminal = Terminal(program("tallyctl"), "--socket", self.socket_path, "ps", *options, columns=columns)
            self.addCleanup(terminal.close)
            self.assertEqual(terminal.run.wait(30), 0)
            wait_until(lambda terminal=terminal: terminal.written.count(b"\n") == 2, "two lines")
            lines = terminal.written.decode().split("\r\n")
            self.assertEqual(max(map(len, lines)) <= columns, fits, lines)
            self.assertEqual("REFUSED" in lines[0], not fits)
        self.assertIn("REFUSED", self.ctl("ps").stdout)
        self.assertRegex(self.ctl("ps").stdout.splitlines()[0], " GPU ")


@unittest.skipIf(MISSING, f"not built: {MISSING}")
class RealPrograms(OnATerminal, FullStackTest):
    def test_rates_of_programs_on_the_software_gpu(self):
        self.start_daemon("--policy", "tally")
        self.start_under_tally(sys.executable, CASES, "requests", "20", priority="high",
                               options=("--name", "service", "--slo", "p99=1us"))
        self.start_under_tally(sys.executable, CASES, "forever", "200", options=("--name", "training"))
        rows = lambda: {row["tenant"]: row for row in self.ctl_json("top", "--once", "--interval", "0.5")["rows"]}
        is_there = lambda row: row and (row["launches_per_s"] or 0) > 0
        wait_until(lambda: is_there(rows().get("service")) and is_there(rows().get("training")), "both work", 60)
        wait_until(lambda: rows()["service"]["slo_observed_ns"] > 1000, "its latency is known", 60)
        found = rows()
        self.assertEqual((found["service"]["class"], found["service"]["slo"], found["service"]["level"]), ("high", "p99=1us", 0))
        self.assertEqual((found["training"]["class"], found["training"]["weight"]), ("best-effort", 100))
        for row in found.values():  # of one GPU, so at most 1; but a loaded machine takes samples late
            self.assertTrue(0 < row["busy_share"] < 5, row)
            self.assertEqual(row["gpus"], "0")
        (busy,) = {row["tenant"]: row for row in self.ctl_json("ps")}["service"]["busy"]
        self.assertEqual(busy["class"], "high")
        self.assertGreater(busy["busy_ns"], 0)
        terminal = self.top()
        terminal.wait_for("GPU 0 software GPU")
        for row in (r"service +high +0 +[\d.]+ +\d\S* \S+ +[1-9]\S* +\S+ p99 \S+/1us", r"training +best-effort +100 +[1-9]"):
            wait_until(lambda row=row: re.search(rf"(?m)^ +\d+ {row}", terminal.text()), row)

    @unittest.skipUnless("TALLY_TOP_PICTURE" in os.environ, "draws the picture of docs/tallyctl.md into that file")
    def test_picture(self):
        self.start_daemon("--policy", "tally")
        for name, loops, options in (("search", "20", ("--slo", "p99=5ms")), ("ranking", "20", ("--slo", "p99=20us", "--level", "1"))):
            self.start_under_tally(sys.executable, CASES, "requests", loops, priority="high", options=("--name", name, *options))
        for name, weight in (("train-resnet", "300"), ("train-bert", "100"), ("nightly-report", "50")):
            self.start_under_tally(sys.executable, CASES, "forever", "100", options=("--name", name, "--weight", weight))
        terminal = self.top(lines=16)
        wait_until(lambda: len(re.findall(r"p99 [\d.]+k?/", terminal.text())) == 2, "both have had requests", 60)
        terminal.type("jj")
        time.sleep(5)  # until rates are of busy seconds
        with open(os.environ["TALLY_TOP_PICTURE"], "w", encoding="utf-8") as file:
            file.write(svg_of(terminal.screen))


if __name__ == "__main__":
    unittest.main(verbosity=2)
