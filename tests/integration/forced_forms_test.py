#!/usr/bin/env python3
"""Every program of tests/programs on the software driver with each of its kernels in another form than it came in.

What the differential tests do to random kernels, for what nvcc compiles: the checksums must be those of the originals.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import unittest

from support.daemon_fixture import DaemonTest, program

BUILD = os.environ["TALLY_TEST_BUILD"]
PROGRAMS = os.environ.get("TALLY_TEST_PROGRAMS") or os.path.join(BUILD, "programs")
SOURCE = os.path.join(os.environ["TALLY_TEST_SOURCE"], "tests", "programs")
# It loses its context on purpose, which is its domain's: the others would see it.
LEFT_OUT = {"kernel_faults"}
# What two programs of a domain print on the device at one time is not told apart.
ALONE = {"device_printf", "printf_flush", "process_ends"}


def expected_checksums():
    with open(os.path.join(SOURCE, "expected_checksums.txt"), encoding="ascii") as lines:
        return dict(line.split() for line in lines if line.strip() and not line.startswith("#"))


class ForcedForms(DaemonTest):
    executor = ""  # the real one, beside tallyd

    def run_one(self, name):
        """None if all is well, else what went wrong."""
        command = [program("tally-run"), "--socket", self.socket_path, "--priority", "best-effort",
                   os.path.join(PROGRAMS, name)]
        try:
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110, check=False)
        except subprocess.TimeoutExpired:
            return f"{name}: no end"
        output = run.stdout.decode(errors="replace")
        checksums = re.findall(r"^checksum: ([0-9a-f]{16}) OK$", output, re.MULTILINE)
        if run.returncode == 0 and checksums[-1:] == [self.expected[name]]:
            return None
        return f"{name}: status {run.returncode}: {output[-500:]}"

    def run_all_as(self, form, shown=None):
        self.expected = expected_checksums()
        self.start_daemon("--transforms", "all", "--cache-directory", os.path.join(self.directory, "cache"),
                          env={"TALLY_FORCE_FORM": form})
        names = [name for name in sorted(self.expected)
                 if name not in LEFT_OUT and os.path.exists(os.path.join(PROGRAMS, name))]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            together = [name for name in names if name not in ALONE]
            failures = [failure for failure in pool.map(self.run_one, together) if failure]
        failures += [failure for failure in map(self.run_one, sorted(ALONE & set(names))) if failure]
        kernels = self.ctl_json("kernels")
        in_form = [kernel for kernel in kernels if kernel["form"].startswith(shown or form)]
        print(f"{form}: {len(names)} programs, {len(in_form)} of the {len(kernels)} listed kernels and shapes in that form")
        self.assertEqual(failures, [])
        self.assertGreater(len(in_form), 30, kernels)

    def test_slices(self):
        self.run_all_as("slices")

    def test_workers(self):
        self.run_all_as("workers")

    def test_gated(self):
        self.run_all_as("gated")

    def test_spliced(self):
        """Gates in the program's own kernels, as machine code gets them: launches, nodes of graphs, everything."""
        self.run_all_as("spliced", "gated")


if __name__ == "__main__":
    if not os.path.exists(os.path.join(PROGRAMS, "reduction")):
        print("SKIPPED ALL: not built here: the programs")
        sys.exit(0)
    unittest.main(verbosity=2)
