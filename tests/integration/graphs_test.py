#!/usr/bin/env python3
"""Graphs of best-effort programs in partitions, on a software GPU that starts a random one of what may start: results
are those of the whole graph, whatever happens meanwhile."""
import os
import re
import sys
import time
import unittest

from support.chrome_trace import ChromeTrace
from support.daemon_fixture import free_port, wait_until
from support.full_stack import PROGRAMS, FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "graph_case.py")
MISSING = not_built()
FORCED = {"TALLY_FORCE_GRAPHS": "partitions", "TALLY_GRAPH_PARTITION_NODES": "3", "TALLY_SIM_SHUFFLE": "1",
          "TALLY_SIM_REUSE_ADDRESSES": "1"}
# By what they do with graphs.
OF_GRAPHS = ["graph_built", "graph_capture", "graph_memory", "graph_moved", "graph_pageable", "graph_repeated", "graph_topology",
             "graph_updates", "driver_graphs", "window_graphs", "stream_dependencies"]


class Graphs(FullStackTest):
    def start_forced(self, *options, **more):
        self.port = free_port()
        return self.start_daemon(*options, env={**FORCED, **more}, metrics=f"127.0.0.1:{self.port}")

    def start_case(self, *case, priority="best-effort", options=()):
        return self.start_under_tally(sys.executable, CASES, *map(str, case), priority=priority, options=options)

    def assert_ok(self, run):
        output, _ = run.communicate(timeout=110)
        self.assertEqual((run.returncode, output.decode().splitlines()[-1:]), (0, ["OK"]), output.decode())

    def metric(self, name):
        return sum(float(count) for count in re.findall(rf"^tally_tenant_{name}\{{[^}}]*\}} (\S+)$", self.scrape(self.port),
                                                        re.MULTILINE))

    def graphs(self):
        return self.ctl_json("graphs")

    def test_launches_on_several_streams_before_the_first_is_waited_for(self):
        self.start_forced()
        self.assert_ok(self.start_case("launches", 5, 7, 30, 20))
        wait_until(lambda: self.metric("graphs_in_partitions_total") == 30, "its figures are there", 30)
        # 39 nodes, three to a partition.
        self.assertEqual(self.metric("graph_partitions_total"), 30 * 13)

    def test_more_nodes_than_a_device_may_launch(self):
        self.start_forced(TALLY_GRAPH_PARTITION_NODES="7")
        self.assert_ok(self.start_case("launches", 40, 10, 4))

    def test_updates_between_launches(self):
        self.start_forced()
        self.assert_ok(self.start_case("updates", 4, 5, 40))
        wait_until(lambda: self.metric("graphs_in_partitions_total") > 0, "its figures are there", 30)

    def test_what_goes_while_it_runs(self):
        self.start_forced()
        self.assert_ok(self.start_case("gone_in_flight", 4, 4, 12))

    def test_the_device_is_reset(self):
        self.start_forced()
        self.assert_ok(self.start_case("reset", 4, 4, 6))

    def test_a_fault_in_a_partition_is_cudas_error_and_of_nobody_else(self):
        self.start_forced()
        neighbour = self.start_case("launches", 4, 4, 40, options=("--domain", "neighbour"))
        self.assert_ok(self.start_case("faults", 5, 4))
        self.assert_ok(neighbour)
        self.assert_ok(self.start_case("launches", 3, 3, 5))

    def test_a_program_may_die_in_the_middle_of_a_graph(self):
        self.start_forced()
        for delay in (0.0, 0.02, 0.1):
            run = self.start_case("forever", 6, 20, 2000)
            self.assertEqual(run.stdout.readline(), b"launched\n")
            time.sleep(delay)
            run.kill()
            run.wait()
            self.assert_ok(self.start_case("launches", 3, 3, 3))
        wait_until(lambda: not self.ctl_json("ps"), "nothing of them is left", 60)

    def test_beside_a_service_graphs_are_cut_and_right(self):
        """Nothing is forced: because somebody with priority is there, and only then."""
        self.port = free_port()
        self.start_daemon("--transforms", "gate", "--share-contexts", "--gates-rest-after-ms", "0",
                          env={"TALLY_SIM_SHUFFLE": "1", "TALLY_GRAPH_PARTITION_NODES": "4"},
                          metrics=f"127.0.0.1:{self.port}")
        self.assert_ok(self.start_case("launches", 4, 4, 10))
        wait_until(lambda: self.metric("graph_launches_total") == 10, "its figures are there", 30)
        self.assertEqual(self.metric("graphs_in_partitions_total"), 0)
        service = self.start_case("forever", 2, 2, 2000, priority="high")
        self.assertEqual(service.stdout.readline(), b"launched\n")
        self.assert_ok(self.start_case("launches", 4, 4, 30, 3000))
        wait_until(lambda: self.metric("graphs_in_partitions_total") > 0, "they were cut", 30)
        wait_until(lambda: {row["why_whole"] for row in self.graphs()} == {"high-priority"}, "only the service's own is left")
        self.assertIsNone(service.poll())

    def test_who_says_off_is_left_whole(self):
        self.start_forced()
        run = self.start_case("forever", 3, 4, options=("--graphs", "off"))
        wait_until(lambda: any(row["launches"] > 4 for row in self.graphs()), "it runs", 60)
        self.assertEqual({(row["why_whole"], row["launches_in_partitions"], row["partitions"]) for row in self.graphs()},
                         {("off", 0, 0)})
        self.assertIsNone(run.poll())

    def test_off_is_off_after_an_update_too(self):
        self.start_forced()
        self.assert_ok(self.start_under_tally(sys.executable, CASES, "updates", "4", "5", "12", env={"TALLY_GRAPHS": "off"}))
        wait_until(lambda: self.metric("graph_launches_total") == 12, "its figures are there", 30)
        self.assertEqual(self.metric("graphs_in_partitions_total"), 0)

    def test_one_that_is_too_large_is_left_whole(self):
        self.start_forced()
        run = self.start_case("forever", 201, 100, 1)
        wait_until(lambda: any(row["launches"] > 1 for row in self.graphs()), "it runs", 90)
        self.assertEqual({(row["nodes"], row["why_whole"]) for row in self.graphs()}, {(20300, "too-large")})
        self.assertIsNone(run.poll())

    def test_what_people_see(self):
        self.start_forced()
        run = self.start_case("forever", 3, 4)
        wait_until(lambda: any(row["in_partitions_ns"] > 0 for row in self.graphs()), "it was timed", 60)
        (row,) = self.graphs()
        self.assertEqual((row["nodes"], row["partitions"], row["gpus"], row["why_whole"]), (14, 5, 1, ""))
        self.assertGreater(row["launches_in_partitions"], 0)
        self.assertRegex(self.ctl("graphs").stdout, rf"{re.escape(row['id'])} +14 +5 ")
        self.assertEqual(len(self.ctl_json("graph", row["id"])), 1)
        picture = self.ctl("graph", row["id"], "--dot").stdout
        self.assertTrue(picture.startswith("digraph "), picture)
        self.assertEqual((picture.count('label="advance"'), picture.count('label="gather"')), (12, 2))
        self.assertEqual(picture.count("subgraph cluster_"), 5)
        for wrong, status in (("7", 2), ("7.x", 2), ("99.1", 1), (row["id"] + "7", 1)):
            for options in ((), ("--dot",)):
                result = self.ctl("graph", wrong, *options)
                self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (status, "", 1), result.stderr)
        self.assertIsNone(run.poll())

    def test_a_trace_has_partitions(self):
        self.start_forced()
        run = self.start_case("forever", 3, 4)
        wait_until(lambda: any(row["launches"] > 4 for row in self.graphs()), "it runs", 60)
        path = os.path.join(self.directory, "trace.json")
        self.assertEqual(self.ctl("trace", "--seconds", "0.5", "-o", path).returncode, 0)
        with open(path, encoding="ascii") as file:
            text = file.read()
        ChromeTrace(text)
        self.assertIn("graph partition", text)
        self.assertIsNone(run.poll())

    def test_a_program_with_a_cap_is_right(self):
        self.start_forced()
        self.assert_ok(self.start_case("launches", 4, 6, 20, 500, options=("--share", "40%")))

    def test_programs_in_partitions(self):
        for seed, nodes in ((1, 1), (2, 2), (3, 5)):
            daemon = self.start_forced(TALLY_SIM_SHUFFLE=str(seed), TALLY_GRAPH_PARTITION_NODES=str(nodes))
            for name in OF_GRAPHS:
                path = os.path.join(PROGRAMS, name)
                if not os.path.exists(path):
                    continue
                with self.subTest(name=name, seed=seed, nodes=nodes):
                    self.assert_right(self.start_under_tally(path))
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
        sys.exit(0)
    unittest.main(verbosity=2)
