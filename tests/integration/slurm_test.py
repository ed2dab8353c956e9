#!/usr/bin/env python3
"""deploy/slurm with a faked environment of slurmd's: a job's grant, its socket, its end. In a mount namespace of its own."""
import os
import subprocess
import sys
import unittest

from support.daemon_fixture import BIN, DaemonTest, Refused, Session, as_user, wait_until

SLURM = os.path.join(os.environ["TALLY_TEST_SOURCE"], "deploy", "slurm")
USER, OTHER = 12345, 54321


@unittest.skipUnless(os.geteuid() == 0, "needs root, as slurmd does")
class Job(DaemonTest):
    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o711)
        self.jobs = os.path.join(self.directory, "jobs")
        self.config = os.path.join(self.directory, "slurm.env")
        tallyctl = os.path.join(self.directory, "tallyctl.sh")
        with open(tallyctl, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nexec {BIN}/tallyctl --socket {self.socket_path} "$@"\n')
        os.chmod(tallyctl, 0o755)
        self.configure(TALLYCTL=tallyctl, JOBS=self.jobs, HIGH_PARTITIONS="'web inference'")
        self.addCleanup(self.unmount)

    def unmount(self):
        with open("/proc/mounts", encoding="utf-8") as mounts:
            for place in [line.split()[1] for line in mounts if self.jobs in line]:
                subprocess.run(["umount", "-l", place], check=False)

    def configure(self, **variables):
        with open(self.config, "a", encoding="ascii") as file:
            file.writelines(f"{name}={value}\n" for name, value in variables.items())

    def run_script(self, name, job="77", uid=None, **more):
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job, "SLURM_JOB_UID": str(USER), "SLURM_JOB_GPUS": "0",
               "SLURM_JOB_PARTITION": "batch", "TALLY_SLURM_LIBRARY": os.path.join(self.directory, "job.sh"),
               "TALLY_SLURM_CONFIG": self.config, **more}
        with open(os.path.join(SLURM, "job.sh"), encoding="ascii") as source, \
                open(env["TALLY_SLURM_LIBRARY"], "w", encoding="ascii") as target:
            target.write(source.read())
        with open(os.path.join(SLURM, name), encoding="ascii") as script:  # from standard input: that user may not get there
            who = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
            return subprocess.run(["sh", "-s"], stdin=script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                                  cwd="/", check=False, **who)

    def assert_ok(self, name, **more):
        result = self.run_script(name, **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def socket_of(self, job="77", **more):
        """As the job's task gets it."""
        lines = self.assert_ok("task-prolog", job=job, uid=USER, SLURM_JOB_NAME="train", **more).splitlines()
        self.assertTrue(all(line.startswith("export ") for line in lines))
        variables = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        self.assertEqual(variables["TALLY_NAME"], "train")
        self.assertTrue(variables["LD_LIBRARY_PATH"].startswith("/usr/lib/tally/client"))
        return variables["TALLY_SOCKET"]

    def session_as(self, uid, path):
        with as_user(uid):
            session = Session(path)
        self.addCleanup(session.close)
        return session

    def tenants(self):
        return {row["tenant"]: row for row in self.ctl_json("grant", "list")}

    def test_from_prolog_to_epilog(self):
        self.start_daemon()
        self.assertEqual(self.assert_ok("prolog"), "")
        grant = self.tenants()["slurm-77"]
        self.assertEqual((grant["class"], grant["namespace"], grant["pod"]), ("best-effort", "slurm", "job-77"))
        path = self.socket_of()
        session = self.session_as(USER, path)
        (row,) = self.ctl_json("ps")
        self.assertEqual((row["tenant"], row["uid"]), ("slurm-77", USER))
        with self.assertRaises(PermissionError):  # another user's job
            self.session_as(OTHER, path)
        self.assert_ok("epilog")
        self.assertEqual(self.tenants(), {})
        wait_until(lambda: not session.is_open(), "its programs end")
        self.assertEqual(os.listdir(self.jobs), [])
        with self.assertRaises((OSError, Refused)):
            self.session_as(USER, path)
        self.assert_ok("epilog")  # again

    def test_partitions_memory_and_jobs_without_a_gpu(self):
        self.start_daemon()
        self.configure(JOB_MEMORY="2G")
        self.assert_ok("prolog", job="1", SLURM_JOB_PARTITION="inference")
        self.assert_ok("prolog", job="2", SLURM_JOB_GPUS="")
        self.assert_ok("prolog", job="3", SLURM_JOB_PARTITION="infer")
        found = {name: (row["class"], row["device_memory_bytes"]) for name, row in self.tenants().items()}
        self.assertEqual(found, {"slurm-1": ("high", 2 << 30), "slurm-3": ("best-effort", 2 << 30)})
        self.assertEqual(self.assert_ok("task-prolog", job="2", uid=USER), "")

    def test_a_job_that_is_tried_again_gets_a_new_grant(self):
        self.start_daemon()
        self.assert_ok("prolog")
        first = self.tenants()["slurm-77"]["id"]
        old = self.session_as(USER, self.socket_of())
        self.assert_ok("prolog")
        self.assertNotEqual(self.tenants()["slurm-77"]["id"], first)
        wait_until(lambda: not old.is_open(), "what was left of the first has ended")
        self.session_as(USER, self.socket_of())

    def test_two_jobs_of_one_user_are_two_tenants(self):
        self.start_daemon()
        for job in ("8", "9"):
            self.assert_ok("prolog", job=job)
            self.session_as(USER, self.socket_of(job=job))
        self.assertEqual([row["tenant"] for row in self.ctl_json("ps")], ["slurm-8", "slurm-9"])
        self.assert_ok("epilog", job="8")
        wait_until(lambda: [row["tenant"] for row in self.ctl_json("ps")] == ["slurm-9"], "the first job's programs end")

    def test_what_goes_wrong_is_one_sentence_and_leaves_nothing(self):
        for name in ("prolog", "epilog", "task-prolog"):
            for job in ("", "../../etc", "7 7", "7;reboot"):
                result = self.run_script(name, job=job)
                self.assertEqual((result.returncode, result.stdout), (1, ""))
                self.assertEqual(result.stderr, f"tally: job {job or '?'}: '{job}' is no job\n")
        result = self.run_script("prolog")
        self.assertEqual((result.returncode, result.stderr), (1, "tally: job 77: no tallyd answers on this node\n"))
        self.assertFalse(os.path.exists(self.jobs))
        self.assert_ok("epilog")
        self.start_daemon()
        result = self.run_script("prolog", SLURM_JOB_UID="nobody-of-that-name")
        self.assertEqual(result.returncode, 1)
        self.assertEqual((self.tenants(), os.listdir(self.jobs)), ({}, []))


if __name__ == "__main__":
    if os.geteuid() == 0 and "TALLY_TEST_OWN_MOUNTS" not in os.environ:
        os.environ["TALLY_TEST_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    unittest.main(verbosity=2)
