#!/usr/bin/env python3
"""Holding in the gaps of a service, on the software GPU with scripted time slices: what it does is seen from outside."""
import os
import re
import sys
import unittest

from support.daemon_fixture import free_port, wait_until
from support.full_stack import SLICED_EXECUTOR, SLICES, FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MISSING = not_built(SLICED_EXECUTOR)
GAPS = ("gaps_hit", "gaps_late", "gaps_by_rule", "gaps_by_guard")


class HoldingTest(FullStackTest):
    executor = SLICED_EXECUTOR

    def start(self, *options):
        self.port = free_port()
        self.start_daemon(*options, metrics=f"127.0.0.1:{self.port}", driver="cuda", env=SLICES)

    def program(self, priority, pause_ms):
        """Short requests, each waited for."""
        return self.start_under_tally(sys.executable, CASES, "requests", "20", str(pause_ms), priority=priority,
                                      options=("--name", priority))

    def row(self, tenant="high"):
        return {row["tenant"]: row for row in self.ctl_json("ps")}.get(tenant, dict.fromkeys(("gap_hold_ns", "kernel_launches", *GAPS), 0))

    def wait_for(self, figure, least=1):
        wait_until(lambda: self.row()[figure] >= least, lambda: f"{figure}: {self.row()}", 100)

    def sample(self, family, **labels):
        rest = "".join(f',{name}="{value}"' for name, value in labels.items())
        return float(re.search(rf'(?m)^{family}{{tenant="high",uid="\d+"{rest}}} (\S+)$', self.scrape(self.port)).group(1))

    def test_both_ways_are_tried_and_what_came_of_them_is_seen(self):
        self.start()
        self.program("best-effort", 20)
        service = self.program("high", 0)
        self.wait_for("gap_hold_ns")
        self.wait_for("requests_gaps_held", 32)
        self.assertRegex(self.ctl("ps").stdout, r"(yes|no): \d+ of \d+ gaps, [\d.]+ ms held, [\d.]+ ms not")
        self.assertEqual({self.row("best-effort")[name] for name in GAPS}, {0})
        service.kill()
        service.wait()
        wait_until(lambda: self.row()["kernel_launches"] == 0, "its session is gone")
        outcomes = {name: self.sample("tally_tenant_gaps_total", outcome=name) for name in ("hit", "late", "rule", "guard")}
        self.assertGreater(outcomes["guard"], 16, "32 requests went without, once gaps were known")
        self.assertGreater(outcomes["hit"] + outcomes["late"], 0)
        self.assertGreater(self.sample("tally_tenant_gap_hold_seconds_total"), 0)
        requests = {way: self.sample("tally_tenant_guarded_requests_total", gaps=way) for way in ("held", "open")}
        self.assertGreaterEqual(min(requests.values()), 32)
        guarded = sum(outcomes[name] for name in ("hit", "late", "guard"))
        self.assertLessEqual(guarded, 1.1 * sum(requests.values()) + 10, "each request begins with one at most")
        for way, num in requests.items():
            mean = self.sample("tally_tenant_guarded_request_seconds_total", gaps=way) / num
            self.assertTrue(1e-5 < mean < 10, mean)
        self.assertEqual(self.sample("tally_tenant_prefer_holding_sessions"), 0, "none runs")

    def test_nothing_is_counted_where_nobody_else_would_get_the_gaps(self):
        self.start()
        self.program("high", 0)
        self.wait_for("kernel_launches", 200)
        row = self.row()
        self.assertEqual({row[name] for name in (*GAPS, "gap_hold_ns", "requests_gaps_held", "requests_gaps_open")}, {0})

    def test_nor_where_it_is_turned_off(self):
        self.start("--no-hold-gpu")
        self.program("best-effort", 20)
        self.program("high", 0)
        self.wait_for("kernel_launches", 200)
        self.assertEqual({self.row()[name] for name in GAPS}, {0})


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
