#!/usr/bin/env python3
"""Processes and threads of clients: fork, exec, descriptors, limits, users, children; on the software driver."""
import os
import signal
import subprocess
import sys
import unittest

from support.daemon_fixture import is_alive, program, wait_until
from support.full_stack import FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "process_cases.py")
MISSING = not_built()


class Processes(FullStackTest):
    def run_case(self, name):
        run = subprocess.run([program("tally-run"), "--socket", self.socket_path, "--quiet", sys.executable, CASES, name],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=80, check=False)
        self.assertEqual(run.returncode, 0, run.stderr.decode(errors="replace"))
        return run.stdout.decode()

    def assert_nothing_is_left(self):
        wait_until(lambda: self.ctl_json("ps") == [], "no session is left")

    def check(self, *names, last_line="OK"):
        """Runs the cases one after another beside one executor, which must survive them all."""
        self.start_daemon()
        self.run_case("use_once")
        executors = [row["pid"] for row in self.ctl_json("executors")]
        for name in names:
            with self.subTest(name):
                self.assertEqual(self.run_case(name).splitlines()[-1:], [last_line] if last_line else [])
                self.assert_nothing_is_left()
        self.assertEqual(self.run_case("use_once"), "3\nOK\n")
        self.assertEqual([row["pid"] for row in self.ctl_json("executors")], executors)

    def test_fork(self):
        self.check("fork_before_use", "fork_after_use")

    def test_exec_and_children(self):
        self.check("exec_gives_a_new_program", "other_programs_are_left_alone")

    def test_descriptors(self):
        self.check("closes_all_descriptors", "few_descriptors")

    def test_threads(self):
        self.check("many_threads_come_and_go")

    def test_end_without_a_word(self):
        self.check("never_looks_back", last_line="")

    def test_child_outlives_its_parent(self):
        self.start_daemon()
        child = int(self.run_case("child_outlives_its_parent").splitlines()[0])
        try:
            self.assert_nothing_is_left()
            self.assertTrue(is_alive(child), "this test is about a child that lives longer")
        finally:
            os.kill(child, signal.SIGKILL)

    @unittest.skipUnless(os.getuid() == 0, "needs root")
    def test_changed_user_and_root_directory(self):
        self.check("changes_its_user")


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
