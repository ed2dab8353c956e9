#!/usr/bin/env python3
"""Programs of both classes under every policy, on the software driver: right results, the dead let go."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from support.daemon_fixture import free_port, program, wait_until
from support.full_stack import REPEATED_LAUNCHES
from support.policies import CASES, MISSING, PolicyTest, SharingTest


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

    def test_the_default_is_look_ahead_here(self):
        daemon = self.start_daemon()
        self.assert_right(self.start_program())
        self.assertEqual(self.policies(), {"look-ahead"})
        self.assertIn("policy look-ahead: the software GPU has no time slices", self.log_of(daemon))

    def test_a_weight_that_would_be_ignored_is_refused(self):
        self.start_daemon()
        run = self.start_program("--weight", "300")
        output = run.communicate(timeout=60)[0].decode()
        self.assertNotEqual(run.returncode, 0, output)
        self.assertIn("a weight is ignored by the policy in force, look-ahead: it takes tallyd with --policy fair or tally", output)

    def test_the_environment_stands_in_for_the_option(self):
        self.start_daemon(env={"TALLY_POLICY": "fair"})
        self.assert_right(self.start_program())
        self.assertEqual(self.policies(), {"fair"})

    def test_embedded_daemons_take_it_from_the_environment(self):
        refused = self.run_embedded("best")
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("there is no policy 'best'; there are auto (time-slices where the driver accepts them, else look-ahead), look-ahead, none", refused.stdout)
        self.assertEqual(self.run_embedded("tally").returncode, 0)

    def test_a_wrong_name_is_refused(self):
        daemon = self.start_daemon("--policy", "best", wait=False)
        self.assertEqual(daemon.wait(60), 2)
        self.assertIn("there is no policy 'best'; there are auto (time-slices where", self.log_of(daemon))


class Sharing(SharingTest):
    def test_the_environment_gives_weight_and_level(self):
        self.start_daemon("--policy", "tally")
        self.start_program("--name", "low", command=(sys.executable, CASES, "forever", "20"),
                           env={"TALLY_WEIGHT": "7"})
        self.start_program("--name", "top", priority="high", command=(sys.executable, CASES, "forever", "20"),
                           env={"TALLY_LEVEL": "3"})
        wait_until(lambda: set(self.rows()) == {"low", "top"}, "both are there")
        self.assertEqual((self.rows()["low"]["weight"], self.rows()["top"]["level"]), (7, 3))

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


class BusyTime(SharingTest):
    """Of both classes, whatever the policy."""
    def busy_seconds(self, port, tenant):
        sample = rf'(?m)^tally_tenant_gpu_busy_seconds_total\{{tenant="{tenant}",uid="\d+",gpu="(GPU-[0-9a-f-]{{36}})",class="([a-z-]+)"\}} ([\d.e+-]+)$'
        return {(gpu, name): float(value) for gpu, name, value in re.findall(sample, self.scrape(port))}

    def test_it_is_counted_by_gpu_and_class_and_outlives_tallyd(self):
        port = free_port()
        first = self.start_daemon(metrics=f"127.0.0.1:{port}")
        self.assert_right(self.start_program("--name", "gone"))
        self.forever("one")
        wait_until(lambda: self.rows().get("one", {}).get("busy_ns", 0) > 3e7, "it runs", 60)
        self.forever("service", priority="high")
        own = {"one": "best-effort", "service": "high"}

        def are_counted():
            for tenant, name in own.items():
                busy = self.busy_seconds(port, tenant)
                if {each for _, each in busy} != {"best-effort", "high"}:
                    return False
                if any((value > 0.02) != (each == name) for (_, each), value in busy.items()):
                    return False
            return True
        wait_until(are_counted, "both are counted, each in its class", 60)
        def is_kept():
            with contextlib.suppress(FileNotFoundError), open(os.path.join(self.directory, "ledger"), encoding="utf-8") as ledger:
                return '"gone"' in ledger.read()
            return False
        wait_until(is_kept, "it is kept what has ended")
        tenants = [*own, "gone"]
        before = {tenant: self.busy_seconds(port, tenant) for tenant in tenants}
        first.kill()
        first.wait()
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")
        wait_until(lambda: all(self.busy_seconds(port, tenant) for tenant in own), "their executors are back", 60)
        for tenant in tenants:
            after = self.busy_seconds(port, tenant)
            self.assertEqual(after.keys(), before[tenant].keys())
            for key, value in before[tenant].items():
                self.assertGreaterEqual(after[key], value)


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


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
