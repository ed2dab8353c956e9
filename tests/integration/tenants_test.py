#!/usr/bin/env python3
"""Pods of user 0 with a grant each, on the software GPU: no variable of Tally's, one mount, and a CUDA program."""
import os
import subprocess
import sys
import unittest

from support.daemon_fixture import wait_until
from support.full_stack import BUILD, FullStackTest, not_built

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "pod_program.py")
ILLEGAL_ADDRESS, OUT_OF_MEMORY = 700, 2
# Of a context that is no more; of a call that was on its way then.
REVOKED = ("709\n", "46\n")
MISSING = not_built()


@unittest.skipUnless(os.getuid() == 0, "only root can make namespaces like a container's")
class Pods(FullStackTest):
    def grant(self, tenant, *arguments):
        made = self.ctl("grant", "create", tenant, *arguments)
        self.assertEqual(made.returncode, 0, made.stderr)
        return os.path.dirname(made.stdout.strip())

    def pod(self, directory, *words, **variables):
        """A program that has the directory at /run/tally, and process numbers of its own."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        environment["LD_LIBRARY_PATH"] = os.path.join(BUILD, "lib", "tally", "client")
        run = subprocess.Popen(["unshare", "-m", "--pid", "--fork", "--kill-child", "sh", "-ec",
                                'mount -t tmpfs tmpfs /run; mkdir /run/tally; mount --bind -o ro "$0" /run/tally; exec "$@"',
                                directory, sys.executable, PROGRAM, *words], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env={**environment, **variables})
        self.addCleanup(self.end, run)
        return run

    def said(self, run):
        output, errors = run.communicate(timeout=120)
        self.assertEqual(run.returncode, 0, errors)
        return output

    def test_one_faults_and_the_other_goes_on(self):
        self.start_daemon()
        serving, faulty = self.grant("serving"), self.grant("faulty")
        service = self.pod(serving, "serve")
        self.assertEqual(service.stdout.readline(), "serving\n")
        for _ in range(3):
            self.assertEqual(self.said(self.pod(faulty, "fault")), f"{ILLEGAL_ADDRESS}\n")
        self.assertIsNone(service.poll(), "no request of it has failed")
        self.assertEqual({row["tenant"]: row["domain"] for row in self.ctl_json("ps")}["serving"], "best-effort@serving")

    def test_revoked_in_mid_run(self):
        self.start_daemon()
        directory = self.grant("gone", "--priority", "high")
        service, other = self.pod(directory, "serve"), self.pod(self.grant("other"), "serve")
        for run in (service, other):
            self.assertEqual(run.stdout.readline(), "serving\n")
        self.assertEqual({(row["tenant"], row["class"], row["uid"]) for row in self.ctl_json("ps")},
                         {("gone", "high", 0), ("other", "best-effort", 0)})
        self.assertEqual(self.ctl("grant", "revoke", "gone").returncode, 0)
        self.assertIn(self.said(service), REVOKED)
        self.assertIsNone(other.poll())
        wait_until(lambda: [row["tenant"] for row in self.ctl_json("ps")] == ["other"], "one is left")

    def test_revoked_in_a_shared_domain(self):
        self.start_daemon()
        services = [self.pod(self.grant(name, "--domain", "shared"), "serve") for name in ("gone", "other")]
        for run in services:
            self.assertEqual(run.stdout.readline(), "serving\n")
        self.assertEqual(self.ctl("grant", "revoke", "gone").returncode, 0)
        self.assertIn(self.said(services[0]), REVOKED)
        wait_until(lambda: [row["tenant"] for row in self.ctl_json("ps")] == ["other"], "one is left")
        self.assertIsNone(services[1].poll())

    def test_a_memory_limit_is_its_device(self):
        self.start_daemon()
        limit = 16 << 20
        directory = self.grant("small", "--memory", "16M")
        self.assertEqual(self.said(self.pod(directory, "memory", str(limit + 1))), f"{limit} {OUT_OF_MEMORY} 0\n")
        self.assertEqual(self.said(self.pod(directory, "memory", str(limit // 2))), f"{limit} 0 0\n")

    def test_a_variable_raises_nothing(self):
        self.start_daemon()
        run = self.pod(self.grant("low"), "serve", TALLY_PRIORITY="high")
        _, errors = run.communicate(timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("tenant 'low' may not run high-priority programs", errors)


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
