#!/usr/bin/env python3
"""Profilers are declined and programs run on: NVIDIA's libcupti beside our libcuda.so.1, on the software driver."""
import glob
import os
import subprocess
import sys
import unittest

from support.daemon_fixture import DaemonTest, program

CASE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "profiler_case.py")
CUDA_ROOT = os.environ.get("CUDA_ROOT", "/usr/local/cuda")
LIBRARIES = sorted(path for folder in ("lib", "lib64", "extras/CUPTI/lib64")
                   for path in glob.glob(os.path.join(CUDA_ROOT, folder, "libcupti.so.1[0-9]")))


class Profilers(DaemonTest):
    executor = ""  # the real one, beside tallyd

    def run_case(self, when, **environment):
        return subprocess.run([program("tally-run"), "--socket", self.socket_path, "--quiet", sys.executable, CASE, LIBRARIES[-1], when],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=80, check=False, env={**os.environ, **environment})

    def test_cupti_is_declined(self):
        self.start_daemon()
        for when in ("before", "after"):
            with self.subTest(when):
                run = self.run_case(when)
                self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b"OK\n", b""))

    def test_the_log_says_so_on_request(self):
        self.start_daemon()
        run = self.run_case("after", TALLY_LOG="info")
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        self.assertIn("a profiler (CUPTI) is told that there is none", run.stderr.decode())

    def test_injection_of_a_profiler_that_is_not_there(self):
        """As profilers start programs: the driver would load this library, ours does not."""
        self.start_daemon()
        run = self.run_case("before", CUDA_INJECTION64_PATH="/nonexistent/libinjected.so", NVTX_INJECTION64_PATH="/nonexistent/libnvtx.so")
        self.assertEqual((run.returncode, run.stdout), (0, b"OK\n"), run.stderr.decode())


if __name__ == "__main__":
    if not LIBRARIES:
        print("SKIPPED ALL: no libcupti in", CUDA_ROOT)
        sys.exit(0)
    unittest.main(verbosity=2)
