#!/usr/bin/env python3
"""Programs of both classes under every policy, on the software driver: right results, nobody starves, the dead let go."""
import os
import subprocess
import unittest

from support.daemon_fixture import DaemonTest, program

BUILD = os.environ["TALLY_TEST_BUILD"]
PROGRAMS = os.environ.get("TALLY_TEST_PROGRAMS") or os.path.join(BUILD, "programs")
REPEATED = os.path.join(PROGRAMS, "repeated_launches")
NEEDED = [program("tallyd"), program("tally-run"), program("tally-executor"), REPEATED,
          os.path.join(BUILD, "lib", "tally", "client", "libcuda.so.1"),
          os.path.join(BUILD, "lib", "tally", "libtally-sim-driver.so")]
MISSING = [path for path in NEEDED if not os.path.exists(path)]


class PolicyTest(DaemonTest):
    executor = ""  # the real one, beside tallyd

    def start_program(self, *arguments, priority="best-effort", command=(REPEATED,), env=None):
        run = subprocess.Popen([program("tally-run"), "--socket", self.socket_path, "--priority", priority, *arguments,
                                *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env={**os.environ, **(env or {})})
        self.addCleanup(self.end, run)
        return run

    def assert_right(self, run):
        output, _ = run.communicate(timeout=100)
        self.assertEqual(run.returncode, 0, output.decode())
        self.assertTrue(output.decode().splitlines()[-1].endswith(" OK"), output.decode())

    def policies(self):
        return {row["policy"] for row in self.ctl_json("executors")}


class ResultsAreTheSame(PolicyTest):
    def run_together(self, policy):
        self.start_daemon("--policy", policy)
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


class Choosing(PolicyTest):
    def run_embedded(self, policy):
        return subprocess.run([program("tally-run"), "--embedded", "--driver", "sim", REPEATED], check=False, text=True,
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


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
