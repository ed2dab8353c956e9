#!/usr/bin/env python3
"""Graphs spread over several software GPUs, each of which starts a random one of what may start: the results of one GPU, as
many bytes moved as was planned, and one error for one program when something dies."""
import contextlib
import os
import re
import signal
import sys
import time
import unittest

from graphs_test import OF_GRAPHS
from support.daemon_fixture import free_port, is_alive, wait_until
from support.full_stack import PROGRAMS, SLICED_EXECUTOR, SLICES, FullStackTest, not_built

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support")
CASES = os.path.join(SUPPORT, "spread_case.py")
GRAPH_CASES = os.path.join(SUPPORT, "graph_case.py")
TASK_GRAPHS = os.path.join(PROGRAMS, "..", "bench", "task_graphs")  # compiled with them
SCHEDULING_CASES = os.path.join(SUPPORT, "scheduling_case.py")
MISSING = not_built(SLICED_EXECUTOR)
FORCED = {"TALLY_FORCE_GRAPHS": "spread", "TALLY_SIM_SHUFFLE": "1"}


class SpreadCase(FullStackTest):
    def start(self, num_gpus, forced=True, driver="sim", **more):
        self.port = free_port()
        daemon = self.start_daemon(env={**(FORCED if forced else {}), "TALLY_SIM_DEVICES": str(num_gpus), **more},
                                   metrics=f"127.0.0.1:{self.port}", driver=driver)
        # It may know of the tenants of the one before it.
        self.spread_before = self.metric("graphs_spread_total")
        return daemon

    def start_case(self, *case, file=CASES, options=("--graphs", "spread"), env=None):
        return self.start_under_tally(sys.executable, file, *map(str, case), options=options, env=env)

    def assert_ok(self, run):
        output, _ = run.communicate(timeout=200)
        self.assertEqual((run.returncode, output.decode().splitlines()[-1:]), (0, ["OK"]), output.decode())

    def metric(self, name):
        return sum(float(count) for count in re.findall(rf"^tally_tenant_{name}\{{[^}}]*\}} (\S+)$", self.scrape(self.port),
                                                        re.MULTILINE))

    def num_spread(self):
        return self.metric("graphs_spread_total") - self.spread_before

    def row(self):
        (row,) = self.ctl_json("graphs")
        return row

    def children(self):
        """Mirrors: of the executors, by /proc."""
        found = []
        for executor in self.noted_executors():
            for task in os.listdir(f"/proc/{executor}/task") if is_alive(executor) else []:
                # Threads come and go; what one has started another one has then.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    with open(f"/proc/{executor}/task/{task}/children", encoding="ascii") as file:
                        found += map(int, file.read().split())
        return found

    def end_daemon(self, daemon):
        daemon.kill()
        daemon.wait()
        for pid in self.noted_executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_forever(self, *more):
        run = self.start_case("forever", "wavefront", *more)
        self.assertEqual(run.stdout.readline(), b"launched\n")
        wait_until(lambda: any(row["launches_spread"] > 4 for row in self.ctl_json("graphs")), "it is spread", 60)
        return run


class Spread(SpreadCase):
    def test_seven_shapes_have_the_bits_of_one_gpu(self):
        for num_gpus in (2, 4):
            with self.subTest(gpus=num_gpus):
                daemon = self.start(num_gpus)
                self.assert_ok(self.start_case("shapes"))
                # All but the chain, which gains nothing.
                wait_until(lambda: self.num_spread() == 18, lambda: f"they were spread: {self.num_spread()}", 30)
                self.assertGreater(self.metric("graph_moved_bytes_total"), 0)
                self.end_daemon(daemon)

    def test_what_people_see(self):
        self.start(2)
        run = self.start_case("forever", "wavefront")
        wait_until(lambda: any(row["launches_spread"] > 4 for row in self.ctl_json("graphs")), "it is spread", 60)
        row = self.row()
        self.assertEqual((row["nodes"], row["gpus"], row["why_whole"]), (120, 2, ""))
        self.assertGreater(row["spread_ns"], 0)
        self.assertGreater(row["moved_bytes"], 0)
        self.assertEqual(row["moved_bytes"] % (row["launches_spread"] * 16 * 16 * 4), 0, "whole tiles, as planned")
        self.assertIn("spread", self.ctl("graphs").stdout)
        # All its tasks, on both GPUs, each with what was planned and what came of it.
        picture = self.ctl("graph", row["id"], "--dot").stdout
        steps = re.findall(r'^    s\d+ \[label="(.*)"\];$', picture, re.MULTILINE)
        tasks = [label for label in steps if label.startswith("task ")]
        self.assertEqual(len(tasks), 120, picture)
        self.assertTrue(all("combine, 1 node\\nplanned " in label and "\\nran " in label for label in tasks), picture)
        self.assertEqual(picture.count("subgraph cluster_"), 2)
        moved = sum(int(label.split()[0]) for label in steps if "bytes from GPU" in label)
        self.assertEqual(moved, row["moved_bytes"] // row["launches_spread"])
        self.assertIsNone(run.poll())

    def test_a_mirror_that_is_killed_is_one_error_of_one_program(self):
        self.start(3)
        neighbour = self.start_case("launches", 4, 4, 4000, file=GRAPH_CASES, options=())
        run = self.start_forever(3000)
        self.assertEqual(len(self.children()), 2)
        os.kill(self.children()[0], signal.SIGKILL)
        output, _ = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 1, output.decode())
        self.assertIn("CUDA error 46", output.decode())
        wait_until(lambda: not self.children(), "the other mirror has ended", 30)
        self.assert_ok(neighbour)
        self.assert_ok(self.start_case("shapes", "butterfly"))

    def test_a_program_may_die_in_the_middle_of_a_graph(self):
        self.start(2)
        for delay in (0.0, 0.01, 0.05):
            run = self.start_forever(2000)
            time.sleep(delay)
            run.kill()
            run.wait()
            wait_until(lambda: not self.children(), "its mirror has ended", 30)
            wait_until(lambda: not self.ctl_json("ps"), "nothing of it is left", 30)
        self.assert_ok(self.start_case("shapes", "chain"))

    def test_declared_tasks_go_to_any_gpu(self):
        for num_gpus in (2, 4):
            daemon = self.start(num_gpus)
            self.assert_ok(self.start_case("declared", 40))
            # As cuSOLVER's: more kernels a task than a mirror's page has room for at one time.
            self.assert_ok(self.start_case("declared", 6, 200))
            wait_until(lambda: self.num_spread() == 6, lambda: f"they were spread: {self.num_spread()}", 30)
            self.assertGreater(self.metric("graph_moved_bytes_total"), 0)
            self.end_daemon(daemon)

    def test_declarations_that_make_no_sense(self):
        self.start(2)
        self.assert_ok(self.start_case("nonsense"))
        self.assert_ok(self.start_case("nonsense", options=()))

    def test_a_fault_on_another_gpu_is_cudas_error_and_of_nobody_else(self):
        self.start(2)
        neighbour = self.start_case("launches", 4, 4, 2000, file=GRAPH_CASES, options=())
        self.assert_ok(self.start_case("lies"))
        self.assert_ok(neighbour)
        self.assert_ok(self.start_case("shapes", "random"))

    def test_factorisations_are_right(self):
        for num_gpus in (2, 4):
            # Small matrices, and what else the program has.
            daemon = self.start(num_gpus, TALLY_SPREAD_LEAST_BYTES="1024")
            for problem in ("lu", "cholesky"):
                for words in ((), ("--annotated",)):
                    with self.subTest(gpus=num_gpus, problem=problem, words=words):
                        before = self.num_spread()
                        run = self.start_under_tally(TASK_GRAPHS, "--problem", problem, "--n", "48", "--tiles", "6", "--plain",
                                                     "--repetitions", "2", *words, options=("--graphs", "spread"))
                        output, _ = run.communicate(timeout=100)
                        self.assertEqual(run.returncode, 0, output.decode())
                        self.assertRegex(output.decode(), "residual")
                        # Of the plain kernels not enough is known: for PTX each touches whole columns of tiles.
                        if words:
                            wait_until(lambda before=before: self.num_spread() == before + 3, "it was spread", 30)
            self.end_daemon(daemon)

    def test_the_log_says_what_cannot_leave(self):
        daemon = self.start(2)
        self.assert_ok(self.start_case("shapes", "butterfly", env={"SPREAD_CASE_OPTIONS": "1"}))
        self.assertEqual(self.num_spread(), 0)
        said = [line for line in self.log_of(daemon).splitlines() if "stays on" in line]
        self.assertRegex(said[0], "graphs: combine stays on its GPU: its code was loaded with options")
        self.assertRegex(said[-1], "a graph of 120 tasks stays on one GPU: 0 may leave it")

    def test_programs_of_graphs(self):
        for num_gpus, seed in ((2, 1), (4, 2)):
            daemon = self.start(num_gpus, TALLY_SPREAD_LEAST_BYTES="1", TALLY_SIM_SHUFFLE=str(seed))
            for name in OF_GRAPHS:
                path = os.path.join(PROGRAMS, name)
                if not os.path.exists(path):
                    continue
                with self.subTest(name=name, gpus=num_gpus):
                    self.assert_right(self.start_under_tally(path, options=("--graphs", "spread")))
            self.end_daemon(daemon)

    def test_updates_between_launches(self):
        self.start(2, TALLY_SPREAD_LEAST_BYTES="1")
        self.assert_ok(self.start_case("updates", 4, 5, 40, file=GRAPH_CASES))
        wait_until(lambda: self.num_spread() > 0, "it was spread", 30)

    def test_what_goes_while_it_runs(self):
        self.start(2, TALLY_SPREAD_LEAST_BYTES="1")
        self.assert_ok(self.start_case("gone_in_flight", 4, 4, 12, file=GRAPH_CASES))
        self.assert_ok(self.start_case("reset", 4, 4, 6, file=GRAPH_CASES))

    def test_memory_that_is_had_again_is_other_memory(self):
        self.start(2, TALLY_SIM_REUSE_ADDRESSES="1")
        self.assert_ok(self.start_case("anew", "wavefront"))
        wait_until(lambda: self.num_spread() > 4, "all of it was spread", 30)

    def test_what_does_not_pay_is_left_whole(self):
        self.start(2, forced=False)
        run = self.start_case("forever", "independent", 1)
        wait_until(lambda: any(row["launches"] > 40 for row in self.ctl_json("graphs")), "it runs", 60)
        row = self.row()
        self.assertIn(row["why_whole"], ("no-gain", "slower"))
        self.assertIsNone(run.poll())

    def test_who_does_not_ask_is_left_alone(self):
        self.start(2)
        self.assert_ok(self.start_case("shapes", "butterfly", options=()))
        wait_until(lambda: self.metric("graph_launches_total") > 0, "its figures are there", 30)
        self.assertEqual(self.num_spread(), 0)
        self.assertEqual(self.children(), [])


class BesideOthers(SpreadCase):
    """With time slices, which the software GPU has not: those of the scripted driver."""
    executor = SLICED_EXECUTOR

    def test_what_spreads_gives_way_on_each_gpu(self):
        notes = os.path.join(self.directory, "notes")
        self.start(2, driver="cuda", **SLICES, TALLY_SCRIPT_NOTES=notes)
        self.start_forever()
        (mirror,) = self.children()

        def slice_of_mirror():
            with open(notes, encoding="ascii") as file:
                return [int(us) for pid, us in map(str.split, file) if int(pid) == mirror][-1]
        own = slice_of_mirror()
        self.assertEqual(own, 2000, "as the driver has it: nobody else is there")
        service = self.start_under_tally(sys.executable, SCHEDULING_CASES, "busy", "1000", "1", priority="high")
        wait_until(lambda: slice_of_mirror() < own, lambda: f"it gives way: {slice_of_mirror()} us", 60)
        self.assertIsNone(service.poll())


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
        sys.exit(0)
    unittest.main(verbosity=2)
