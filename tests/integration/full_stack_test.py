#!/usr/bin/env python3
"""The real programs with unmodified CUDA programs on the software driver: who survives when something is killed."""
import os
import signal
import subprocess
import sys
import time
import unittest

from support.daemon_fixture import is_alive, program, wait_until
from support.full_stack import BUILD, PROGRAMS, FullStackTest, not_built

TRAINING = os.path.join(PROGRAMS, "demo", "batch_training")
SCHEDULING_CASE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MACHINE_CODE_ONLY = os.path.join(BUILD, "tests", "machine_code_only")
MISSING = not_built(TRAINING)


class FullStack(FullStackTest):
    def start_program(self, *options, priority="best-effort", seconds=60):
        return self.start_under_tally(TRAINING, "--seconds", str(seconds), priority=priority, options=options)

    def launches_of(self, run):
        for row in self.ctl_json("ps"):
            if row["pid"] == run.pid:
                return row["kernel_launches"] + row["graph_launches"]
        return 0

    def wait_until_launching(self, run):
        first = wait_until(lambda: self.launches_of(run), "it launches kernels", 60)
        wait_until(lambda: self.launches_of(run) > first, "it launches more", 60)

    def executor_of(self, run):
        return next(row["executor_pid"] for row in self.ctl_json("ps") if row["pid"] == run.pid)

    def test_embedded_run_gives_the_programs_status_and_leaves_nothing(self):
        runtime = os.path.join(self.directory, "runtime")
        os.makedirs(runtime, mode=0o700)
        result = subprocess.run([program("tally-run"), "--embedded", "--driver", "sim", TRAINING, "--seconds", "1"],
                                env={**os.environ, "XDG_RUNTIME_DIR": runtime}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=90, check=False)
        self.assertEqual(result.returncode, 0, result.stdout.decode())
        self.assertEqual(os.listdir(runtime), [])

    def test_killed_embedded_run_leaves_nothing(self):
        runtime = os.path.join(self.directory, "runtime")
        os.makedirs(runtime, mode=0o700)
        run = subprocess.Popen([program("tally-run"), "--embedded", "--driver", "sim", TRAINING, "--seconds", "60"],
                               env={**os.environ, "XDG_RUNTIME_DIR": runtime}, stdout=subprocess.DEVNULL)
        self.addCleanup(self.end, run)
        wait_until(lambda: any(name == "activity" for _, _, names in os.walk(runtime) for name in names),
                   "there is an executor", 60)
        run.kill()
        wait_until(lambda: os.listdir(runtime) == [], "its daemon removes the directory")

    @unittest.skipUnless(os.path.exists(MACHINE_CODE_ONLY), "machine_code_only is not built")
    def test_program_without_ptx_is_told_why_once(self):
        run = subprocess.run([program("tally-run"), "--embedded", "--driver", "sim", MACHINE_CODE_ONLY],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=90, check=False)
        self.assertEqual((run.returncode, run.stdout), (3, "cudaErrorNoKernelImageForDevice cudaErrorNoKernelImageForDevice\n"))
        self.assertRegex(run.stderr, r"^tally\[\d+\] W the software GPU runs PTX \(up to compute_90\), and this program or a "
                         r"library of it has only machine code \(sm_80, sm_90\): compile it with "
                         r"-gencode arch=compute_90,code=compute_90, or use a GPU\n$")

    def test_killed_client_in_mid_launch(self):
        self.start_daemon()
        victim, survivor = self.start_program(), self.start_program()
        self.wait_until_launching(victim)
        self.wait_until_launching(survivor)
        executor = self.executor_of(survivor)
        victim.kill()
        wait_until(lambda: [row["pid"] for row in self.ctl_json("ps")] == [survivor.pid], "only the survivor is left")
        self.wait_until_launching(survivor)
        self.assertEqual(self.executor_of(survivor), executor)

    def test_killed_executor(self):
        self.start_daemon()
        victim, survivor = self.start_program(), self.start_program(priority="high")
        self.wait_until_launching(victim)
        self.wait_until_launching(survivor)
        os.kill(self.executor_of(victim), signal.SIGKILL)
        # One documented error, never a hang: the program ends by itself, with an error of its own.
        self.assertNotEqual(victim.wait(60), 0)
        self.wait_until_launching(survivor)
        self.wait_until_launching(self.start_program())

    def test_killed_tallyd(self):
        first = self.start_daemon()
        run = self.start_program()
        self.wait_until_launching(run)
        before = self.launches_of(run)
        executor = self.executor_of(run)
        first.kill()
        first.wait()
        time.sleep(1)
        self.assertIsNone(run.poll())
        self.start_daemon()
        wait_until(lambda: self.launches_of(run) > before, "it went on launching and the next tallyd knows", 60)
        self.assertEqual(self.executor_of(run), executor)

    def test_work_of_a_killed_program_that_does_not_end_ends_its_executor(self):
        config = os.path.join(self.directory, "tallyd.json")
        with open(config, "w", encoding="ascii") as file:
            file.write('{"departed_work_limit_seconds": 1}')
        daemon = self.start_daemon("--config", config)
        endless = self.start_under_tally(sys.executable, SCHEDULING_CASE, "endless", priority="high")
        self.assertEqual(endless.stdout.readline(), b"launched\n")
        executor = self.executor_of(endless)
        endless.kill()
        # Held back by that kernel, and by nothing else.
        waiting = self.start_under_tally(sys.executable, SCHEDULING_CASE, "many", "10", "20")
        output, _ = waiting.communicate(timeout=60)
        self.assertEqual((output, waiting.returncode), (b"OK\n", 0))
        wait_until(lambda: not is_alive(executor), "it has ended")
        self.assertIn("is gone and its work has not ended in 1 s", self.log_of(daemon))
        wait_until(lambda: not self.ctl_json("ps"), "the waiting program's session has ended")

    def test_who_comes_behind_work_that_does_not_end_is_not_ended_with_it(self):
        config = os.path.join(self.directory, "tallyd.json")
        with open(config, "w", encoding="ascii") as file:
            file.write('{"departed_work_limit_seconds": 6}')
        daemon = self.start_daemon("--config", config)
        neighbour = self.start_program()
        self.wait_until_launching(neighbour)
        endless = self.start_under_tally(sys.executable, SCHEDULING_CASE, "endless")
        self.assertEqual(endless.stdout.readline(), b"launched\n")
        executor = self.executor_of(endless)
        endless.kill()
        wait_until(lambda: [row["state"] for row in self.ctl_json("executors")] == ["retiring"], "its work goes on")
        later = self.start_program()
        self.wait_until_launching(later)
        self.assertNotEqual(self.executor_of(later), executor)
        wait_until(lambda: not is_alive(executor), "it has ended")
        self.assertIn("is gone and its work has not ended in 6 s", self.log_of(daemon))
        before = self.launches_of(later)
        wait_until(lambda: self.launches_of(later) > before, "the later one goes on")

    def test_work_of_programs_that_are_gone_ends_with_them_where_nobody_else_is(self):
        """As natively. Whoever comes meanwhile waits for nothing, and nobody counts it as a failure."""
        daemon = self.start_daemon()
        programs = [self.start_under_tally(sys.executable, SCHEDULING_CASE, "endless") for _ in range(2)]
        for endless in programs:
            self.assertEqual(endless.stdout.readline(), b"launched\n")
        executor = self.executor_of(programs[0])
        self.assertEqual(self.executor_of(programs[1]), executor)
        programs[0].kill()
        wait_until(lambda: [row["state"] for row in self.ctl_json("executors")] == ["retiring"], "its work goes on")
        time.sleep(1)
        self.assertTrue(is_alive(executor), "the other one is still there")
        programs[1].kill()
        wait_until(lambda: not is_alive(executor), "it has ended")
        self.assertNotIn("its work has not ended in", self.log_of(daemon))
        self.assertNotIn("failed", self.log_of(daemon))
        self.assertFalse(any(row["failures"] for row in self.ctl_json("executors")))

    def test_full_dev_shm_does_not_matter(self):
        """Channels are memfds: they do not live in /dev/shm."""
        probe = "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"
        if subprocess.run(["unshare", "-m", "sh", "-c", probe], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("this machine does not allow a mount namespace")
        result = subprocess.run(
            ["unshare", "-m", "sh", "-c", probe + ' && exec "$@"', "sh", program("tally-run"), "--embedded", "--quiet",
             TRAINING, "--seconds", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, check=False)
        self.assertEqual(result.returncode, 0, result.stdout.decode())


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
