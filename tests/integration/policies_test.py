#!/usr/bin/env python3
"""Programs of both classes under every policy, on the software driver: right results, nobody starves, the dead let go."""
import os
import signal
import subprocess
import sys
import time
import unittest

from support.daemon_fixture import free_port, is_alive, program, wait_until
from support.full_stack import REPEATED_LAUNCHES, FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MISSING = not_built(REPEATED_LAUNCHES)


class PolicyTest(FullStackTest):
    def start_program(self, *options, priority="best-effort", command=(REPEATED_LAUNCHES,), env=None):
        return self.start_under_tally(*command, priority=priority, options=options, env=env)

    def policies(self):
        return {row["policy"] for row in self.ctl_json("executors")}


class ResultsAreTheSame(PolicyTest):
    def run_together(self, policy, *options):
        self.start_daemon("--policy", policy, *options)
        runs = [self.start_program(), self.start_program(), self.start_program(priority="high")]
        for run in runs:
            self.assert_right(run)
        self.assertEqual(self.policies(), {policy})
        self.assertIn(policy, self.ctl("executors").stdout)

    def test_look_ahead(self):
        self.run_together("look-ahead")

    def test_none(self):
        self.run_together("none")

    def test_kernel_granular(self):
        self.run_together("kernel-granular")

    def test_tally_paper(self):
        self.run_together("tally-paper")

    def test_fair(self):
        self.run_together("fair")

    def test_tally(self):
        self.run_together("tally")

    def test_look_ahead_with_a_starvation_bound(self):
        self.run_together("look-ahead", "--starvation-bound", "2ms")

    def test_tally_with_a_starvation_bound(self):
        self.run_together("tally", "--starvation-bound", "2ms")


class Choosing(PolicyTest):
    def run_embedded(self, policy):
        return subprocess.run([program("tally-run"), "--embedded", "--driver", "sim", REPEATED_LAUNCHES], check=False, text=True,
                              env={**os.environ, "TALLY_POLICY": policy}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=100)

    def test_the_default_is_what_there_always_was(self):
        self.start_daemon()
        self.assert_right(self.start_program())
        self.assertEqual(self.policies(), {"look-ahead"})

    def test_the_environment_stands_in_for_the_option(self):
        self.start_daemon(env={"TALLY_POLICY": "fair"})
        self.assert_right(self.start_program())
        self.assertEqual(self.policies(), {"fair"})

    def test_embedded_daemons_take_it_from_the_environment(self):
        refused = self.run_embedded("best")
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("there is no policy 'best'; there are look-ahead, none", refused.stdout)
        self.assertEqual(self.run_embedded("tally").returncode, 0)

    def test_a_wrong_name_is_refused(self):
        daemon = self.start_daemon("--policy", "best", wait=False)
        self.assertEqual(daemon.wait(60), 2)
        self.assertIn("there is no policy 'best'; there are look-ahead, none", self.log_of(daemon))


class SharingTest(PolicyTest):
    def forever(self, name, *arguments, priority="best-effort", loops=20):
        return self.start_program("--name", name, *arguments, priority=priority,
                                  command=(sys.executable, CASES, "forever", str(loops)))

    def rows(self):
        return {row["tenant"]: row for row in self.ctl_json("ps")}

    def start_busy_service(self):
        """High-priority work that never ends."""
        service = self.start_program("--name", "service", priority="high", command=(sys.executable, CASES, "busy", "1000"))
        wait_until(lambda: self.rows().get("service", {}).get("kernel_launches", 0) > 150, "the service works", 60)
        return service

    def launches_within(self, seconds, *names):
        before = self.rows()
        time.sleep(seconds)
        after = self.rows()
        return [after[name]["kernel_launches"] - before[name]["kernel_launches"] for name in names]


class Sharing(SharingTest):
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
        self.assert_shared(1.4, 5, "one", "three")
        self.assertEqual(self.ctl("set-weight", str(self.rows()["one"]["id"]), "900").returncode, 0)
        self.assert_shared(1.4, 5, "three", "one")

    def test_the_environment_gives_weight_and_level(self):
        self.start_daemon("--policy", "tally")
        self.start_program("--name", "low", command=(sys.executable, CASES, "forever", "20"),
                           env={"TALLY_WEIGHT": "7"})
        self.start_program("--name", "top", priority="high", command=(sys.executable, CASES, "forever", "20"),
                           env={"TALLY_LEVEL": "3"})
        wait_until(lambda: set(self.rows()) == {"low", "top"}, "both are there")
        self.assertEqual((self.rows()["low"]["weight"], self.rows()["top"]["level"]), (7, 3))

    def test_a_higher_level_comes_first(self):
        self.start_daemon("--policy", "tally")
        self.forever("top", "--level", "5", priority="high")
        self.forever("low", "--level", "1", priority="high")
        wait_until(lambda: all(self.rows().get(name, {}).get("requests", 0) > 10 for name in ("low", "top")),
                   "both are there")
        self.assert_shared(3, 1e9, "low", "top")

    def test_copies_and_launches_that_are_held_are_served_in_the_end(self):
        for policy in ("tally", "kernel-granular"):
            with self.subTest(policy):
                daemon = self.start_daemon("--policy", policy)
                self.forever("company")
                held = self.start_program(command=(sys.executable, CASES, "one_after_another", "5", "100"))
                output, _ = held.communicate(timeout=100)
                self.assertEqual((held.returncode, output.decode().splitlines()[-1:]), (0, ["OK"]), output.decode())
                daemon.kill()
                daemon.wait()
                os.unlink(self.socket_path)

    def hold(self, policy, *arguments):
        """A best-effort program whose launches are held back because high-priority work never ends."""
        self.start_daemon("--policy", policy, *arguments)
        victim = self.forever("victim")
        wait_until(lambda: self.rows().get("victim", {}).get("kernel_launches", 0) > 100, "it runs")
        self.forever("service", priority="high", loops=1000)
        held = lambda: self.launches_within(0.5, "victim")[0] <= 50 and self.rows()["victim"]["held_launches"] > 0
        wait_until(held, "it is held back", 60)
        return victim

    def assert_let_go(self, victim):
        victim.send_signal(signal.SIGKILL)
        wait_until(lambda: "victim" not in self.rows(), "everything of the dead program is released", 60)
        self.assertIn("service", self.rows())

    def test_a_dead_program_is_let_go_of_while_it_is_held(self):
        self.assert_let_go(self.hold("tally"))

    def test_a_dead_program_is_let_go_of_while_it_is_held_by_look_ahead(self):
        self.assert_let_go(self.hold("look-ahead"))

    def test_what_a_policy_did_is_shown(self):
        port = free_port()
        self.start_daemon("--policy", "tally", metrics=f"127.0.0.1:{port}")
        self.forever("one")
        self.forever("other")
        wait_until(lambda: all(self.rows().get(name, {}).get("held_launches", 0) > 10 for name in ("one", "other")),
                   "they keep one another waiting", 60)
        page = self.scrape(port)
        self.assertRegex(page, r'tally_tenant_gpu_seconds_total\{tenant="one",uid="\d+"\} [\d.e-]*[1-9]')
        self.assertRegex(page, r'tally_tenant_held_launches_total\{tenant="one",uid="\d+"\} [1-9]')
        self.assertRegex(page, r'tally_tenant_held_seconds_total\{tenant="one",uid="\d+"\} [\d.e-]*[1-9]')
        self.assertIn(f'tally_executor_policy{{domain="best-effort:{os.getuid()}",policy="tally"}} 1', page)


class Copies(SharingTest):
    """Of a best-effort program that launches nothing."""
    SIZE = 40 << 20  # five pieces each way

    def begin(self, policy, *options):
        """The program is about to copy, and high-priority work runs without end."""
        self.start_daemon("--policy", policy, *options)
        self.path = os.path.join(self.directory, "go")
        self.start_program("--name", "victim", command=(sys.executable, CASES, "copy_once", self.path, str(self.SIZE)))
        wait_until(lambda: os.path.exists(self.path + ".ready"), "it may begin", 60)
        service = self.start_busy_service()
        self.assertEqual((self.held(), self.copied()), (0, 0))
        open(self.path, "w").close()
        return service

    def held(self):
        return self.rows()["victim"]["held_launches"]

    def copied(self):
        return self.rows()["victim"]["host_to_device_bytes"]

    def is_done(self):
        return os.path.exists(self.path + ".done")

    def wait_and_go_on(self, policy):
        service = self.begin(policy)
        time.sleep(2)
        self.assertFalse(self.is_done(), "high-priority work ran all the time")
        service.kill()
        wait_until(self.is_done, "the copies come through", 60)
        self.assertEqual(self.copied(), self.SIZE)
        self.assertGreater(self.held(), 0)

    def test_they_wait_for_high_priority_work_with_look_ahead(self):
        self.wait_and_go_on("look-ahead")

    def test_they_wait_for_high_priority_work_with_tally(self):
        self.wait_and_go_on("tally")

    def go_in_pieces(self, policy):
        self.begin(policy, "--starvation-bound", "50ms")  # for each of them
        wait_until(self.is_done, "all pieces come through", 60)
        self.assertGreater(self.held(), 4, "two copies that were not cut are held twice")

    def test_large_ones_go_in_pieces_with_look_ahead(self):
        self.go_in_pieces("look-ahead")

    def test_large_ones_go_in_pieces_with_tally(self):
        self.go_in_pieces("tally")


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
            unbounded = self.launches(policy)
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
