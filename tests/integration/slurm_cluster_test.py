#!/usr/bin/env python3
"""deploy/slurm under SLURM itself: one node, in namespaces, with a tallyd of a scripted executor."""
import os
import shutil
import sys
import unittest

from support.daemon_fixture import BIN, DaemonTest, wait_until
from support.slurm_cluster import Cluster, missing

SLURM = os.path.join(os.environ["TALLY_TEST_SOURCE"], "deploy", "slurm")
SKIPPED = "needs root, to be slurmd" if os.geteuid() != 0 else f"not installed: {', '.join(missing())}" if missing() else ""


@unittest.skipIf(SKIPPED, SKIPPED)
class Jobs(DaemonTest):
    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o711)
        self.start_daemon()
        self.scripts = os.path.join(self.directory, "scripts")
        shutil.copytree(SLURM, self.scripts)
        config = os.path.join(self.directory, "slurm.env")
        tallyctl = os.path.join(self.directory, "tallyctl.sh")
        for path, text in ((tallyctl, f'#!/bin/sh\nexec {BIN}/tallyctl --socket {self.socket_path} "$@"\n'),
                           (config, f"TALLYCTL={tallyctl}\nJOBS={self.directory}/jobs\nALL_JOBS=1\nHIGH_PARTITIONS=web\n")):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(path, 0o755)
        for name in ("prolog", "epilog", "task-prolog", "job.sh"):
            path = os.path.join(self.scripts, name)
            with open(path, encoding="ascii") as file:
                text = file.read()
            with open(path, "w", encoding="ascii") as file:
                file.write(text.replace("/usr/share/tally/slurm", self.scripts).replace("/etc/tally/slurm.env", config))
        self.cluster = Cluster(self.directory, self.scripts)
        self.addCleanup(self.cluster.stop)

    def test_a_job_has_its_grant_as_long_as_it_runs(self):
        ask = 'echo "$TALLY_SOCKET $TALLY_NAME $(id -u)"; test -S "$TALLY_SOCKET" && echo there'
        result = self.cluster.run("sh", "-c", ask, uid=65534, options=("-J", "train"))
        self.assertEqual((result.returncode, result.stderr), (0, ""), self.cluster.log())
        words = result.stdout.split()
        self.assertRegex(words[0], r"/jobs/\d+/tally/tally\.sock$")
        self.assertEqual(words[1:], ["train", "65534", "there"])
        wait_until(lambda: not self.ctl_json("grant", "list"), "its grant is revoked")
        result = self.cluster.run(os.path.join(self.directory, "tallyctl.sh"), "grant", "list", options=("-p", "web"))
        self.assertRegex(result.stdout, r"slurm-\d+ +high .* slurm/job-\d+/test")
        wait_until(lambda: not os.listdir(os.path.join(self.directory, "jobs")), "nothing is left")


if __name__ == "__main__":
    if not SKIPPED and "TALLY_TEST_OWN_NAMESPACES" not in os.environ:
        os.environ["TALLY_TEST_OWN_NAMESPACES"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", sys.executable, *sys.argv])
    unittest.main(verbosity=2)
