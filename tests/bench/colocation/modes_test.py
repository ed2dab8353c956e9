"""MPS as bench/colocation starts and ends it, with a control program of our own in place of NVIDIA's."""
import os
import tempfile
import unittest
from unittest import mock

import modes
import ways

CONTROL = """#!/bin/sh
echo "$* $(cat)" >> "$0.log"
test -d "$CUDA_MPS_PIPE_DIRECTORY" || exit 3
test ! -e "$0.refuses" || { echo "no permission"; exit 1; }
if [ "$1" = -d ]; then (sleep 20 & echo $! > "$0.pid"); fi    # as a daemon, which keeps its stdout open
"""


class MpsTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.control = os.path.join(self.directory.name, "nvidia-cuda-mps-control")
        with open(self.control, "w", encoding="utf-8") as text:
            text.write(CONTROL)
        os.chmod(self.control, 0o755)
        patch = mock.patch.dict(os.environ, {"PATH": self.directory.name + os.pathsep + os.environ["PATH"]})
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(self.end_daemon)

    def end_daemon(self):
        if os.path.exists(self.control + ".pid"):
            with open(self.control + ".pid", encoding="ascii") as text:
                os.kill(int(text.read()), 9)

    def test_it_is_started_and_told_to_quit(self):
        with modes.enter("", "mps-priority", False) as place:
            service, training = place.environment("service"), place.environment("training")
            self.assertEqual(service["CUDA_MPS_PIPE_DIRECTORY"], training["CUDA_MPS_PIPE_DIRECTORY"])
            self.assertLess(service["CUDA_MPS_CLIENT_PRIORITY"], training["CUDA_MPS_CLIENT_PRIORITY"])
            self.assertEqual(place.command(["program"], "service"), ["program"])
        with open(self.control + ".log", encoding="utf-8") as text:
            self.assertEqual([line.strip() for line in text], ["-d", "quit"])

    def test_without_priorities_none_is_set(self):
        with modes.enter("", "mps", False) as place:
            self.assertNotIn("CUDA_MPS_CLIENT_PRIORITY", place.environment("training"))

    def test_a_refusal_says_why(self):
        with open(self.control + ".refuses", "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(ways.Failed, "no permission"):
            with modes.enter("", "mps", False):
                pass

    def test_what_is_missing_is_told_before_anything_starts(self):
        self.assertIsNone(modes.missing("/nowhere", "mps", False))
        self.assertIsNone(modes.missing("/nowhere", "tally+gates/200", False))
        self.assertIn("tally_time_slices.so is missing", modes.missing("/nowhere", "driver-slices", False))
        self.assertIn("without a GPU", modes.missing("/nowhere", "mps", True))
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertIn("not on this machine", modes.missing("/nowhere", "mps-priority", False))

    def test_a_machine_without_it(self):
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            with self.assertRaisesRegex(ways.Failed, "not on this machine"):
                with modes.enter("", "mps", False):
                    pass


if __name__ == "__main__":
    unittest.main()
