#!/usr/bin/env python3
"""Best-effort queues that are stopped and go on, on the software driver: results stay the same, whoever dies meanwhile."""
import os
import re
import sys
import time
import unittest

from support.daemon_fixture import free_port, wait_until
from support.full_stack import GRAPH_REPEATED, REPEATED_LAUNCHES, FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MISSING = not_built(REPEATED_LAUNCHES, GRAPH_REPEATED)


class Gated(FullStackTest):
    def start_program(self, priority="best-effort"):
        return self.start_under_tally(REPEATED_LAUNCHES, priority=priority)

    def num_stops(self):
        """How often queues of the best-effort programs that run now were stopped."""
        return sum(row["yields"] for row in self.best_effort_programs())

    def best_effort_programs(self):
        return [row for row in self.ctl_json("ps") if row["class"] == "best-effort"]

    def covered(self, row):
        """GPU time of a session by what can take the GPU from it: {(by, reason): nanoseconds}."""
        return {(part["by"], part["reason"]): part["gpu_time_ns"] for part in row["coverage"]}

    def stop_and_check(self, form, *options):
        self.port = free_port()
        daemon = self.start_daemon("--transforms", "gate", *options, env={"TALLY_FORCE_FORM": form}, metrics=f"127.0.0.1:{self.port}")
        deadline = time.monotonic() + 100
        most_stops = 0
        low = [self.start_program(), self.start_program()]
        # How long a stopped queue took to leave is measured, and told to the kernel in which it was stopped.
        is_measured = lambda: any(row["is_turnaround_measured"] for row in self.ctl_json("kernels"))
        while most_stops < 3 or not is_measured():
            self.assertLess(time.monotonic(), deadline, "no queue was stopped while something of it ran")
            high = self.start_program(priority="high")
            while high.poll() is None:
                most_stops = max(most_stops, self.num_stops())
                time.sleep(0.02)
            self.assert_right(high)
            for number, run in enumerate(low):
                if run.poll() is not None:
                    self.assert_right(run)
                    low[number] = self.start_program()
        for row in self.ctl_json("ps"):
            if row["class"] != "best-effort" or not row["coverage"]:
                continue
            self.assertIn(("gated", ""), self.covered(row))
            self.assertLessEqual(row["stops"], row["yields"])
        for run in low:
            self.assert_right(run)
        is_said = lambda: "in a context of its own (tally-run --domain NAME)" in self.log_of(daemon)
        if "--share-contexts" not in options:
            self.assertFalse(is_said(), "it has one")
        elif any("no gate ends them" in row["remark"] for row in self.ctl_json("kernels")):
            wait_until(is_said, "it is said")
        kernels = [row for row in self.ctl_json("kernels") if row["launches"] > 20]
        self.assertTrue(all(row["form"].startswith("gated") for row in kernels))
        page = self.scrape_at_rest(self.port)
        self.assertRegex(page, r'tally_tenant_stop_seconds_count\{[^}]*\} [1-9]')
        self.assertRegex(page, r'tally_tenant_covered_seconds_total\{[^}]*by="gated",reason=""\} [\d.e-]*[1-9]')

    def test_graphs_are_launched_node_by_node_and_stopped(self):
        self.port = free_port()
        self.start_daemon("--transforms", "gate", env={"TALLY_FORCE_FORM": "spliced:4"},
                          metrics=f"127.0.0.1:{self.port}")
        deadline = time.monotonic() + 100
        stops = 0
        while stops < 3:
            self.assertLess(time.monotonic(), deadline, "graphs were never stopped")
            low = [self.start_under_tally(GRAPH_REPEATED) for _ in range(2)]
            high = self.start_program(priority="high")
            while high.poll() is None and any(run.poll() is None for run in low):
                stops = max(stops, self.num_stops())
                time.sleep(0.005)
            self.assert_right(high)
            for run in low:
                self.assert_right(run)
        page = self.scrape_at_rest(self.port)
        label = r'\{tenant="graph_repeated",uid="\d+",'
        self.assertRegex(page, f'tally_tenant_covered_seconds_total{label}by="gated",reason=""\\}} [\\d.e-]*[1-9]')
        self.assertRegex(page, f'tally_tenant_covered_seconds_total{label}by="time_slice",reason="graph"\\}} 0\n')

    def test_graphs_are_the_drivers_while_nobody_is_there(self):
        self.port = free_port()
        self.start_daemon("--transforms", "gate", metrics=f"127.0.0.1:{self.port}")
        self.assert_right(self.start_under_tally(GRAPH_REPEATED))
        # The last figures of a session come a moment after its program has ended.
        label = r'\{tenant="graph_repeated",uid="\d+",'
        graph = f'tally_tenant_covered_seconds_total{label}by="time_slice",reason="graph"\\}} [\\d.e-]*[1-9]'
        wait_until(lambda: re.search(graph, self.scrape(self.port)), "the graph's time is counted", 30)

    # Both ways to a gate: variants beside the program's kernels, and gates in its own, as machine code gets them.
    def test_results_are_the_same_with_variants(self):
        self.stop_and_check("gated:4")

    def test_results_are_the_same_with_gates_in_place(self):
        self.stop_and_check("spliced:4")

    # Where the executor waits, not the stream, with what has no gate.
    def test_results_are_the_same_in_one_context(self):
        self.stop_and_check("spliced:4", "--share-contexts")

    def test_a_program_may_die_while_it_is_stopped(self):
        self.start_daemon("--transforms", "gate", env={"TALLY_FORCE_FORM": "spliced:4"})
        self.assert_right(self.start_program())  # the executor is there, and its images are known
        for delay in (0.05, 0.15, 0.3, 0.5):
            low = self.start_program()
            high = self.start_program(priority="high")
            time.sleep(delay)
            low.kill()
            low.wait()
            self.assert_right(high)
            self.assert_right(self.start_program())

    def start_case(self, *case, priority="best-effort"):
        return self.start_under_tally(sys.executable, CASES, *case, priority=priority)

    def test_a_program_of_long_blocks_has_a_context_of_its_own_the_next_time(self):
        daemon = self.start_daemon("--transforms", "gate", "--share-contexts", "--cache-directory",
                                   os.path.join(self.directory, "cache"), env={"TALLY_FORCE_FORM": "gated:1"})
        self.start_case("requests", "1000", "20", priority="high")
        where = lambda: [(re.sub("[0-9a-f]{16}:.*|:.*", "", row["domain"]), row["has_long_blocks"])
                         for row in self.best_effort_programs()]
        low = self.start_case("forever", "300000")
        wait_until(lambda: where() == [("mixed", 1)], "its blocks run on after stops", 100)
        wait_until(lambda: "the next time that this program starts" in self.log_of(daemon), "it is remembered")
        low.kill()
        low.wait()
        wait_until(lambda: not where(), "it is gone", 60)
        self.start_case("forever", "300001")
        wait_until(lambda: [domain for domain, _ in where()] == ["mixed"], "another program shares as ever", 60)
        self.start_case("forever", "300000")
        wait_until(lambda: ("long-blocks-", 0) in where(), "it is alone", 60)
        self.assertRegex(self.log_of(daemon), r"session \d+: its program gets a context of its own: when it shared one, "
                                              r"blocks of kernel spin ran on for [\d.]+ ms")

    def test_copies_behind_a_stopped_queue_come_through(self):
        self.start_daemon("--transforms", "gate", env={"TALLY_FORCE_FORM": "spliced:4"})
        self.start_case("requests", "1000", priority="high")
        low = self.start_case("one_after_another", "20", "3000")
        stops = 0
        while low.poll() is None:
            stops = max(stops, self.num_stops())
            time.sleep(0.01)
        output = low.stdout.read().decode()
        self.assertEqual((low.returncode, output.splitlines()[-1:]), (0, ["OK"]), output)
        self.assertGreater(stops, 0)

    def fill_behind_launches(self, *options):
        self.start_daemon("--transforms", "gate", *options, env={"TALLY_FORCE_FORM": "spliced:4"})
        self.start_case("requests", "1000", priority="high")
        low = self.start_case("fills", "400", "3000")
        stops, transfers = 0, 0
        while low.poll() is None:
            stops = max(stops, self.num_stops())
            transfers = max([transfers, *(row["gated_transfers"] for row in self.best_effort_programs())])
            time.sleep(0.01)
        output = low.stdout.read().decode()
        self.assertEqual((low.returncode, output.splitlines()[-1:]), (0, ["OK"]), output)
        self.assertGreater(stops, 0)
        self.assertGreater(transfers, 300, "nearly all of 800 have a launch in front of them")

    def test_fills_and_copies_behind_launches_are_launches_themselves(self):
        self.fill_behind_launches()

    def test_fills_and_copies_need_no_pause_in_one_context(self):
        self.fill_behind_launches("--share-contexts")

    def test_a_program_may_die_while_its_copy_is_held_behind_a_stopped_queue(self):
        self.start_daemon("--transforms", "gate", env={"TALLY_FORCE_FORM": "spliced:4"})
        low = self.start_case("one_after_another", "10000", "3000")
        wait_until(lambda: any(row["kernel_launches"] > 2 for row in self.ctl_json("ps")), "it runs", 60)
        high = self.start_case("busy", "1000", priority="high")
        wait_until(lambda: any(row["class"] == "high" and row["kernel_launches"] > 150 for row in self.ctl_json("ps")),
                   "the service works", 60)
        time.sleep(0.5)
        low.kill()
        wait_until(lambda: [row["class"] for row in self.ctl_json("ps")] == ["high"], "the dead program is gone", 60)
        self.assertIsNone(high.poll())

    def test_without_anybody_to_stop_for_kernels_run_as_they_are(self):
        self.start_daemon("--transforms", "gate")
        self.assert_right(self.start_program())
        self.assertEqual({row["form"].split("(")[0] for row in self.ctl_json("kernels")}, {"original"})

    def gated_ns(self):
        """GPU time of the best-effort program's gated launches so far."""
        return sum(self.covered(row).get(("gated", ""), 0) for row in self.best_effort_programs())

    def test_gates_rest_while_nobody_with_priority_works(self):
        self.start_daemon("--transforms", "gate", "--gates-rest-after-ms", "200")
        never = os.path.join(self.directory, "never")
        self.start_case("copy_once", never, "4096", priority="high")
        wait_until(lambda: os.path.exists(never + ".ready"), "what it does at its start is over", 60)
        time.sleep(0.5)  # so that gates rest
        self.start_case("forever", "3000")
        nobody = ("time_slice", "nobody_there")
        low = lambda: next(iter(self.best_effort_programs()), {"coverage": []})
        wait_until(lambda: self.covered(low()).get(nobody, 0) > 0, "it runs without gates", 60)
        self.assertEqual(self.gated_ns(), 0)
        high = self.start_case("requests", "1000", priority="high")
        wait_until(lambda: self.gated_ns() > 0, "its launches get gates", 60)
        high.kill()
        high.wait()
        # What is counted lags behind a little.
        before = lambda: (self.gated_ns(), time.sleep(1))[0]
        wait_until(lambda: before() == self.gated_ns(), "gates rest again", 60)
        is_running = self.covered(low())[nobody]
        state = lambda: f"it runs without gates again; {self.ctl_json('ps')}; {self.ctl_json('kernels')}"
        wait_until(lambda: self.covered(low())[nobody] > is_running, state, 60)


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
