#!/usr/bin/env python3
"""A control group that has no process or thread left to give: one sentence for who comes, and nothing lost."""
import contextlib
import os
import subprocess
import time
import unittest
import urllib.request

from support.daemon_fixture import Refused, free_port, program, wait_until
from support.full_stack import FullStackTest, not_built

# The first one that is there: version 1 has a hierarchy for each controller.
HIERARCHIES = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")


def make_group():
    """A new control group that counts processes; none: the machine does not let us."""
    for hierarchy in HIERARCHIES:
        path = os.path.join(hierarchy, f"tally-test-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        if os.path.exists(os.path.join(path, "pids.max")):
            return path
        os.rmdir(path)
    return None


MISSING = not_built()


@unittest.skipIf(MISSING, f"not built: {MISSING}")
class FullCgroup(FullStackTest):
    def setUp(self):
        super().setUp()
        self.group = make_group()
        if self.group is None:
            self.skipTest("no control group that counts processes can be made")
        self.addCleanup(self.remove_group)

    def remove_group(self):
        """Once those have left it that tearDown has killed."""
        def is_removed():
            with contextlib.suppress(OSError):
                os.rmdir(self.group)
            return not os.path.exists(self.group)
        wait_until(is_removed, "the control group is empty")

    def put(self, name, value):
        with open(os.path.join(self.group, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def fill(self, daemon):
        self.put("cgroup.procs", daemon.pid)
        with open(os.path.join(self.group, "pids.current"), encoding="ascii") as file:
            self.put("pids.max", file.read().strip())

    def test_no_executor_can_be_started(self):
        port = free_port()
        daemon = self.start_daemon(metrics=f"127.0.0.1:{port}")
        before = self.session(tenant="before")
        self.fill(daemon)
        for _ in range(3):
            with self.assertRaises(Refused) as refused:
                self.session(tenant="late", domain="another")
            sentence = refused.exception.sentence
            self.assertIn("Resource temporarily unavailable", sentence)
            self.assertLess(len(sentence), 400)
            self.assertNotIn("\n", sentence)
        # What needs no new process goes on.
        self.session(tenant="beside")
        self.assertTrue(before.is_open())
        # So does who looks, and more than one at a time.
        self.assertEqual({row["tenant"] for row in self.ctl_json("ps")}, {"before", "beside"})
        calls = [subprocess.Popen([program("tallyctl"), "--socket", self.socket_path, "ps"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) for _ in range(8)]
        for call in calls:
            _, errors = call.communicate(timeout=60)
            self.assertEqual((call.returncode, errors), (0, b""))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            self.assertIn(b"tally_sessions_refused_total", page.read())
        self.assertIsNone(daemon.poll(), "tallyd lives")
        self.put("pids.max", "max")
        time.sleep(1)  # for so long a start that failed is not tried again
        late = wait_until(self.another_session, "once there is room its executor starts")
        self.assertTrue(late.is_open())
        self.assertEqual({row["tenant"] for row in self.ctl_json("ps")}, {"before", "beside", "late"})

    def another_session(self):
        try:
            return self.session(tenant="late", domain="another")
        except Refused:
            return None


if __name__ == "__main__":
    unittest.main(verbosity=2)
