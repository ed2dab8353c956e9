#!/usr/bin/env python3
"""A tenant's memory quota: all its programs and executors together, in every way that memory is made."""
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

from support.daemon_fixture import program, wait_until
from support.full_stack import FullStackTest, not_built

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "quota_program.py")
OUT_OF_MEMORY = 2
MIB = 1 << 20
# The storm that the page of results tells of has 200.
STORM = int(os.environ.get("TALLY_TEST_STORM", "24"))
MISSING = not_built()


class Quotas(FullStackTest):
    def run_program(self, *words, options=(), socket=None):
        command = [program("tally-run"), "--socket", socket or self.socket_path, *options, sys.executable, PROGRAM, *words]
        run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, run)
        return run

    def numbers(self, run):
        line = run.stdout.readline()
        self.assertTrue(line, "" if line else run.communicate()[1])
        return [int(word) for word in line.split()]

    def go_on(self, run):
        run.stdin.write("\n")
        run.stdin.flush()

    def free_of(self, **words):
        run = self.run_program("fill", "plain", str(1 << 40), **words)
        result, number, free, total = self.numbers(run)
        self.assertEqual((result, number), (OUT_OF_MEMORY, 0))
        run.kill()
        return free, total

    def test_every_way_of_making_memory_counts_and_gives_back(self):
        self.start_daemon()
        for way in ("plain", "pitched", "pooled", "virtual", "array"):
            with self.subTest(way):
                run = self.run_program("fill", way, str(4 * MIB), options=("--memory", "32M", "--name", way))
                self.assertEqual(self.numbers(run), [OUT_OF_MEMORY, 8, 0, 32 * MIB])
                self.go_on(run)
                self.assertEqual(self.numbers(run), [32 * MIB, 32 * MIB])

    def test_programs_of_a_tenant_share_it_and_other_tenants_do_not(self):
        self.start_daemon()
        limit = ("--memory", "32M")
        one = self.run_program("fill", "plain", str(24 * MIB), options=(*limit, "--name", "a"))
        self.assertEqual(self.numbers(one), [OUT_OF_MEMORY, 1, 8 * MIB, 32 * MIB])
        other = self.run_program("fill", "virtual", str(4 * MIB), options=(*limit, "--name", "a", "--domain", "apart"))
        self.assertEqual(self.numbers(other), [OUT_OF_MEMORY, 2, 0, 32 * MIB])
        self.assertEqual(self.free_of(options=(*limit, "--name", "b")), (32 * MIB, 32 * MIB))

    def test_what_a_killed_program_or_executor_held_is_free_again(self):
        self.start_daemon()
        words = {"options": ("--memory", "32M", "--name", "a")}
        run = self.run_program("fill", "plain", str(MIB), **words)
        self.assertEqual(self.numbers(run)[1], 32)
        run.kill()
        wait_until(lambda: self.free_of(**words) == (32 * MIB, 32 * MIB), "what the program held is free")
        apart = {"options": ("--memory", "32M", "--name", "a", "--domain", "apart")}
        run = self.run_program("fill", "plain", str(MIB), **apart)
        self.assertEqual(self.numbers(run)[1], 32)
        executors = {row["domain"]: row["pid"] for row in self.ctl_json("executors")}
        (pid,) = [pid for domain, pid in executors.items() if domain.startswith("apart")]
        os.kill(pid, signal.SIGKILL)

        def room():
            # Finds the slot of the dead one when there is no room.
            again = self.run_program("fill", "plain", str(32 * MIB), **words)
            return self.numbers(again)[1] == 1
        wait_until(room, "what the executor held is free")

    def test_a_daemon_that_starts_again_changes_nothing(self):
        daemon = self.start_daemon()
        words = {"options": ("--memory", "32M", "--name", "a")}
        run = self.run_program("fill", "plain", str(24 * MIB), **words)
        self.assertEqual(self.numbers(run)[2], 8 * MIB)
        daemon.kill()
        daemon.wait()
        self.start_daemon()
        self.assertEqual(self.free_of(options=(*words["options"], "--domain", "apart")), (8 * MIB, 32 * MIB))

    def test_a_grant_of_a_shared_domain_has_its_own(self):
        self.start_daemon()
        sockets = {}
        for tenant, memory in (("a", "32M"), ("b", "64M")):
            made = self.ctl("grant", "create", tenant, "--memory", memory, "--domain", "shared")
            self.assertEqual(made.returncode, 0, made.stderr)
            sockets[tenant] = made.stdout.strip()
        run = self.run_program("fill", "plain", str(MIB), socket=sockets["a"])
        self.assertEqual(self.numbers(run), [OUT_OF_MEMORY, 32, 0, 32 * MIB])
        self.assertEqual(self.free_of(socket=sockets["b"]), (64 * MIB, 64 * MIB))
        self.assertEqual(self.free_of(socket=sockets["b"], options=("--memory", "1G")), (64 * MIB, 64 * MIB), "not more")
        self.assertEqual(self.free_of(socket=sockets["b"], options=("--memory", "8M")), (8 * MIB, 8 * MIB), "but less")

    def page_of(self, run):
        """The file of the tenant that has just begun."""
        self.assertTrue(self.numbers(run))
        directory = os.path.join(self.directory, "tenants")
        (name,) = os.listdir(directory)
        return os.path.join(directory, name)

    def test_what_a_share_has_used_outlives_the_program(self):
        self.start_daemon()
        run = self.run_program("fill", "plain", str(1 << 50), options=("--share", "30%", "--name", "a"))
        page = self.page_of(run)
        with open(page, "r+b", buffering=0) as file:
            file.seek(64)  # used_until_ns of the first GPU, tenant_page_abi.h
            file.write(struct.pack("q", time.monotonic_ns() + 60_000_000_000))
        run.kill()
        wait_until(lambda: not self.ctl_json("ps"), "the session has ended")
        again = self.run_program("fill", "plain", str(1 << 50), options=("--share", "30%", "--name", "a", "--domain", "apart"))
        self.assertEqual(self.page_of(again), page)
        with open(page, "r+b", buffering=0) as file:
            file.seek(64)
            self.assertNotEqual(struct.unpack("q", file.read(8))[0], 0)
            file.seek(64)
            file.write(struct.pack("q", time.monotonic_ns()))
        again.kill()
        wait_until(lambda: not os.path.exists(page), "it is paid for, and nobody has the page")

    def test_pages_that_an_earlier_tallyd_left_go_and_those_in_use_stay(self):
        daemon = self.start_daemon()
        run = self.run_program("fill", "plain", str(24 * MIB), options=("--memory", "32M", "--name", "a"))
        page = self.page_of(run)
        daemon.kill()
        daemon.wait()
        left = os.path.join(self.directory, "tenants", "user-1-1")
        with open(left, "wb") as file:
            file.truncate(os.path.getsize(page))
        self.start_daemon()
        self.assertFalse(os.path.exists(left))
        self.assertTrue(os.path.exists(page))

    def test_a_storm(self):
        self.start_daemon()
        words = ("--memory", "32M", "--name", "storm")
        steady = self.run_program("fill", "plain", str(24 * MIB), options=("--memory", "24M", "--name", "steady"))
        self.assertEqual(self.numbers(steady)[1], 1)
        runs = [self.run_program("storm", "5", str(4 * MIB), options=(*words, "--domain", f"d{i % 3}"))
                for i in range(STORM)]
        for run in runs[::8]:
            run.stdout.readline()
            run.kill()
        for i, run in enumerate(runs):
            output, errors = run.communicate(timeout=250)
            self.assertTrue(i % 8 == 0 or output.startswith("refused"), errors)
        wait_until(lambda: self.free_of(options=words) == (32 * MIB, 32 * MIB), "all of it is free again")
        self.go_on(steady)
        self.assertEqual(self.numbers(steady), [24 * MIB, 24 * MIB])

    def test_amounts_that_are_none(self):
        self.start_daemon()
        for option, value in (("--memory", "-1"), ("--memory", "8Q"), ("--memory", "0"), ("--memory", "99999999T"),
                              ("--memory", ""), ("--share", "30%%"), ("--share", "0"), ("--share", "101%"), ("--share", "-5%")):
            for run in (self.run_program("fill", "plain", "1", options=(f"{option}={value}",)),
                        subprocess.Popen([program("tallyctl"), "--socket", self.socket_path, "grant", "create", "x",
                                          f"{option}={value}"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)):
                _, errors = run.communicate()
                self.assertNotEqual(run.returncode, 0, f"{option}={value}")
                self.assertEqual(len(errors.splitlines()), 1, errors)

    def test_a_share_is_no_matter_of_high_priority(self):
        self.start_daemon()
        run = self.run_program("fill", "plain", str(1 << 50), options=("--share", "30%"))
        self.assertEqual(self.numbers(run)[0:1], [OUT_OF_MEMORY])
        refused = self.ctl("grant", "create", "x", "--priority", "high", "--share", "30%")
        self.assertIn("a share caps best-effort programs", refused.stderr)


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
