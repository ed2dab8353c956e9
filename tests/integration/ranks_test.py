#!/usr/bin/env python3
"""Several processes whose kernels wait for one another, as NCCL's do: an executor for each, on the software GPU, whose
calls wait as NVIDIA's driver's do (TALLY_SIM_WAITS)."""
import faulthandler
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support.daemon_fixture import is_alive, program, wait_until
from support.full_stack import FullStackTest, not_built

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "rank_program.py")
IS_LONG = os.environ.get("TALLY_RANKS_LONG") == "1"
MISSING = not_built()
# Enough steps for every call to be made by every rank.
ALL_CALLS = 56
HANGS_FOR = 8  # seconds without a step: a step takes milliseconds


def torchrun(rank, size, port=29500):
    """What torchrun sets, as far as it matters."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}


class Ranks(FullStackTest):
    def start_rank(self, rank, size, steps, *words, directory, env=None, options=(), priority="best-effort"):
        return self.start_under_tally(sys.executable, PROGRAM, directory, str(rank), str(size), str(steps), *words,
                                      priority=priority, options=options, env=env)

    def start_job(self, size, steps, *words, environment=torchrun, **others):
        directory = tempfile.mkdtemp(dir="/dev/shm", prefix="tally-ranks-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        return [self.start_rank(rank, size, steps, *words, directory=directory,
                                env=environment(rank, size) if environment else None, **others)
                for rank in range(size)]

    def assert_all_right(self, job, seconds=200):
        deadline = time.monotonic() + seconds
        for rank, run in enumerate(job):
            try:
                output, _ = run.communicate(timeout=max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"rank {rank} of {len(job)} hangs")
            self.assertEqual(run.returncode, 0, output.decode())
            self.assertTrue(output.decode().rstrip().endswith("OK"), output.decode())

    def domains(self):
        return sorted(row["domain"] for row in self.ctl_json("executors"))

    def ready(self, job):
        for run in job:
            while True:
                line = run.stdout.readline().decode()
                self.assertTrue(line, "a rank has ended")
                if line.strip() == "ready":
                    break

    def assert_nothing_left(self, executors):
        wait_until(lambda: not any(is_alive(pid) for pid in executors), "executors of ranks end with them")
        wait_until(lambda: not self.ctl_json("executors"), "tallyd knows")
        self.assertEqual(glob.glob(os.path.join(self.directory, "door-*")), [])
        self.assertNotIn("lost its context", self.log_of(self.daemons[-1]))

    def executors(self):
        return {row["domain"].split(":")[0]: row["pid"] for row in self.ctl_json("executors")}


class Apart(Ranks):
    def test_every_call_while_kernels_wait_for_another_rank(self):
        """TALLY_RANKS_LONG=1: more ranks, every way to share memory, both ways to wait, one GPU and two."""
        cases = [(2, "host", 1, 1), (2, "ipc", 2, 1), (2, "physical", 2, 2)]
        if IS_LONG:
            cases += [(size, memory, 2, devices) for size in (2, 3, 8) for memory in ("host", "ipc", "physical")
                      for devices in (1, 2)]
        for size, memory, waits, devices in cases:
            faulthandler.dump_traceback_later(300, exit=True)  # for each of them
            with self.subTest(size=size, memory=memory, waits=waits, devices=devices):
                daemon = self.start_daemon(env={"TALLY_SIM_WAITS": str(waits), "TALLY_SIM_DEVICES": str(devices)})
                self.assert_all_right(self.start_job(size, ALL_CALLS, "--memory", memory, "--devices", str(devices)))
                # The next tallyd would adopt them, with this one's software GPUs.
                wait_until(lambda: not self.ctl_json("executors"), "executors of ranks end with them")
                daemon.terminate()
                daemon.wait(60)

    def test_each_rank_has_an_executor_that_ends_with_it(self):
        self.start_daemon()
        job = self.start_job(2, 100000)
        self.ready(job)
        executors = self.executors()
        self.assertEqual([name.rsplit("-", 1)[0] for name in sorted(executors)], ["rank-0", "rank-1"])
        for run in job:
            run.terminate()
        self.assert_nothing_left(executors.values())

    def test_a_killed_rank_leaves_nothing_and_the_daemon_serves_on(self):
        self.start_daemon()
        job = self.start_job(2, 100000)
        self.ready(job)
        executors = self.executors()
        job[0].kill()
        job[0].wait()
        rank0, rank1 = [executors[name] for name in sorted(executors)]
        wait_until(lambda: not is_alive(rank0), "the killed rank's executor ends, whatever its kernel waits for")
        self.assertIsNone(job[1].poll(), "the other waits, as natively: its communicator's watchdog ends it")
        self.assertTrue(is_alive(rank1))
        job[1].kill()
        job[1].wait()
        self.assert_nothing_left(executors.values())
        # At once: nobody was punished for executors that ended as they should.
        self.assert_all_right(self.start_job(2, 3))

    def test_two_jobs_at_a_time_have_nothing_in_common(self):
        self.start_daemon(env={"TALLY_SIM_WAITS": "2"})
        jobs = [self.start_job(2, 12, environment=lambda rank, size, port=port: torchrun(rank, size, port))
                for port in (29500, 29501)]
        for job in jobs:
            self.assert_all_right(job)
        starts = {row["domain"] for row in self.ctl_json("executors")}
        self.assertLessEqual(len(starts), 4)

    def test_apart_gives_each_process_an_executor(self):
        self.start_daemon(env={"TALLY_SIM_WAITS": "2"})
        job = self.start_job(2, 12, environment=None, options=("--apart",))
        self.assert_all_right(job)
        self.assertTrue(all(name.startswith("apart-") for name in self.domains()), self.domains())

    def test_beside_a_service_that_keeps_coming(self):
        """Each is held by its own device's high-priority work alone, so that each goes on whatever the other does."""
        for devices in (1, 2):  # the service is on the first
            with self.subTest(devices=devices):
                daemon = self.start_daemon(env={"TALLY_SIM_DEVICES": str(devices)})
                service = self.start_under_tally(sys.executable, "-c", SERVICE, priority="high")
                self.assertEqual(service.stdout.readline().strip(), b"ready")
                self.assert_all_right(self.start_job(2, 20, "--memory", "ipc", "--devices", str(devices)))
                self.assertIsNone(service.poll())
                service.kill()
                service.wait()
                wait_until(lambda: not any(name.startswith("rank-") for name in self.domains()), "executors of ranks end")
                daemon.terminate()
                daemon.wait(60)


SERVICE = f"""
import sys, time
sys.path.insert(0, {os.path.dirname(PROGRAM)!r})
from cuda_driver import Cuda
cuda = Cuda()
cuda.launch()
cuda.sum()
print("ready", flush=True)
while True:
    for _ in range(20):
        cuda.launch()
    cuda.sum()
    time.sleep(0.005)
"""


class InOneExecutor(Ranks):
    def test_hangs(self):
        """What an executor for each rank is for. If this ends, TALLY_SIM_WAITS shows nothing any more."""
        self.start_daemon(env={"TALLY_SIM_WAITS": "2"})
        job = self.start_job(2, 1000, "--only", "module", environment=None)
        self.ready(job)
        time.sleep(HANGS_FOR)
        self.assertEqual([run.poll() for run in job], [None, None])
        daemon = self.daemons[-1]
        for run in job:
            run.kill()
            run.wait()
        daemon.kill()

    def test_ranks_of_nccl_are_told_so(self):
        self.start_daemon(env={"TALLY_SIM_WAITS": "2"})
        job = self.start_job(2, 3, "--kernel", "ncclDevKernel_Generic", environment=None)
        told = wait_until(lambda: [run for run in job if run.poll() is not None], "one of them is told")
        self.assertEqual(len(told), 1)
        self.assertEqual(told[0].returncode, 3)
        self.assertIn("tally-run --apart", told[0].stdout.read().decode())
        self.assert_all_right(self.start_job(2, 3, "--kernel", "ncclDevKernel_Generic"))

    def test_one_rank_alone_is_left_alone(self):
        self.start_daemon()
        job = self.start_job(1, 3, "--kernel", "ncclDevKernel_Generic")
        self.assert_all_right(job)
        self.assertEqual([name.split(":")[0] for name in self.domains()], ["best-effort"])


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
        sys.exit(0)
    unittest.main(verbosity=2)
