#!/usr/bin/env python3
"""Latency objectives (--slo) on the software driver: requests are timed, and what they take tunes what best-effort work may do."""
import os
import re
import sys
import unittest

from support.daemon_fixture import HIGH, Refused, Session, free_port, wait_until
from support.full_stack import FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MISSING = not_built()
NEVER, ALWAYS = "p99=1us", "p90=100s"  # met


class ObjectivesTest(FullStackTest):
    def start(self):
        self.port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{self.port}")

    def service(self, name, *options, env=None):
        return self.start_under_tally(sys.executable, CASES, "requests", "20", priority="high", options=("--name", name, *options), env=env)

    def row(self, name):
        return {row["tenant"]: row for row in self.ctl_json("ps")}.get(name, {"slo_caution": -1, "slo_requests": 0, "slo": ""})

    def tuning(self):
        found = re.findall(r'tally_tuning_seconds\{time="(\w+)"\} ([\d.e-]+)', self.scrape(self.port))
        return {time: float(value) for time, value in found}

    def end_now(self, run):
        run.kill()
        run.wait()

    def test_what_cannot_be_met_asks_for_the_highest_throttle_level_and_takes_it_along(self):
        self.start()
        self.assertEqual(self.tuning(), {"turnaround_threshold": 31.6e-6, "min_hold_off": 20e-6, "max_hold_off": 500e-6, "target_drain": 500e-6})
        service = self.service("service", "--slo", NEVER)
        wait_until(lambda: self.row("service")["slo_caution"] == 1, "it asks for the highest throttle level", 60)
        row = self.row("service")
        self.assertEqual(row["slo"], NEVER)
        self.assertGreater(row["slo_observed_ns"], 1000)
        self.assertGreaterEqual(row["slo_requests"], 5 * 200)
        self.assertLessEqual(row["slo_requests"], row["kernel_launches"])
        self.assertRegex(self.ctl("ps").stdout, r"p99=1us: [\d.]+ ms, caution 1\.00")
        self.assertEqual(self.tuning(), {"turnaround_threshold": 10e-6, "min_hold_off": 100e-6, "max_hold_off": 2500e-6, "target_drain": 100e-6})
        page = self.scrape(self.port)
        labels = rf'tenant="service",uid="\d+",session="{row["id"]}"'
        self.assertRegex(page, rf'tally_slo_objective_seconds\{{{labels},percentile="99"\}} 1e-06')
        self.assertRegex(page, rf'tally_slo_observed_seconds\{{{labels},percentile="99"\}} [\d.e-]*[1-9]')
        self.assertRegex(page, rf"tally_slo_caution\{{{labels}\}} 1")
        self.assertRegex(page, r'tally_tenant_slo_requests_total\{tenant="service",uid="\d+"\} \d{4}')
        self.end_now(service)
        wait_until(lambda: self.tuning()["target_drain"] == 500e-6, "nobody asks any more")

    def test_the_most_careful_wins(self):
        self.start()
        self.service("easy", env={"TALLY_SLO": ALWAYS})
        wait_until(lambda: 0 <= self.row("easy")["slo_caution"] < 0.5, "it becomes more generous", 60)
        wait_until(lambda: self.tuning()["target_drain"] > 500e-6, "so do all", 30)
        self.service("hard", "--slo", NEVER)
        wait_until(lambda: self.tuning()["target_drain"] == 100e-6, "the other one decides", 60)
        self.assertLess(self.row("easy")["slo_caution"], 0.5)

    def test_a_class_that_changes_takes_its_objective_out_of_force(self):
        self.start()
        self.service("service", "--slo", NEVER)
        wait_until(lambda: self.tuning()["target_drain"] == 100e-6, "it asks for the highest throttle level", 60)
        self.assertEqual(self.ctl("set-priority", str(self.row("service")["id"]), "best-effort").returncode, 0)
        wait_until(lambda: self.tuning()["target_drain"] == 500e-6, "it is best-effort now")

    def test_what_is_refused(self):
        self.start()
        for options, sentence in (({"slo": "p99"}, "no = after the percentile"), ({"slo": "p100=1ms"}, "between 1 and 99.99"),
                                  ({"slo": NEVER, "priority": 0}, "is for high-priority programs")):
            with self.assertRaises(Refused) as refused:
                Session(self.socket_path, **{"priority": HIGH, **options})
            self.assertIn(sentence, refused.exception.sentence)
        run = self.start_under_tally("true", options=("--slo", NEVER))
        self.assertIn(b"is for high-priority programs", run.communicate(timeout=60)[0])
        self.assertEqual(run.returncode, 2)


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
