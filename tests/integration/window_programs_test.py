#!/usr/bin/env python3
"""Every program of tests/programs with its launches gathered in windows, on a software GPU that starts a random one of
what may start: the checksums must be those of program order."""
import concurrent.futures
import os
import re
import subprocess
import sys
import unittest

from support.daemon_fixture import free_port, program
from support.full_stack import PROGRAMS, FullStackTest, not_built
from support.window import ON, SHADOW, assert_launches_were_in_graphs, hostile_gpu

SOURCE = os.path.join(os.environ["TALLY_TEST_SOURCE"], "tests", "programs")
# It loses its context on purpose, which is its domain's: the others would see it. And who comes next waits: so many
# executors in a row have failed.
LAST = "kernel_faults"
# What two programs of a domain print on the device at one time is not told apart.
ALONE = {"device_printf", "printf_flush", "process_ends"}
ABOUT_ORDER = ["window_hazards", "window_memory", "window_order", "window_transfers", "window_dag", "window_graphs"]
MISSING = not_built(*(os.path.join(PROGRAMS, name) for name in ABOUT_ORDER))


def expected_checksums():
    with open(os.path.join(SOURCE, "expected_checksums.txt"), encoding="ascii") as lines:
        return dict(line.split() for line in lines if line.strip() and not line.startswith("#"))


def refused_programs():
    with open(os.path.join(SOURCE, "refused_programs.txt"), encoding="ascii") as lines:
        return {line.split()[0] for line in lines if re.match("[a-z]", line)}


class WindowPrograms(FullStackTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.expected = expected_checksums()
        self.names = [name for name in sorted(set(self.expected) - refused_programs())
                      if os.path.exists(os.path.join(PROGRAMS, name))]

    def start_hostile_gpu(self, seed):
        return self.start_daemon(env=hostile_gpu(seed), metrics=f"127.0.0.1:{self.port}")

    def failure_of(self, name, priority="best-effort", window=ON):
        """None if all is well, else what went wrong."""
        command = [program("tally-run"), "--socket", self.socket_path, "--priority", priority, os.path.join(PROGRAMS, name)]
        try:
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110, check=False,
                                 env={**os.environ, **window})
        except subprocess.TimeoutExpired:
            return f"{name}: no end"
        output = run.stdout.decode(errors="replace")
        checksums = re.findall(r"^checksum: ([0-9a-f]{16}) OK$", output, re.MULTILINE)
        if run.returncode == 0 and checksums[-1:] == [self.expected[name]]:
            return None
        return f"{name}: status {run.returncode}: {output[-2000:]}"

    def test_every_program(self):
        self.start_hostile_gpu(1)
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            together = [name for name in self.names if name not in ALONE | {LAST}]
            failures = list(pool.map(self.failure_of, together))
        failures += [self.failure_of(name) for name in [*sorted(ALONE & set(self.names)), LAST]]
        self.assertEqual([failure for failure in failures if failure], [])
        assert_launches_were_in_graphs(self, self.scrape_at_rest(self.port), 1000)

    def test_random_orders(self):
        for seed in range(1, 5):
            daemon = self.start_hostile_gpu(seed)
            for name in ABOUT_ORDER:
                self.assertIsNone(self.failure_of(name, priority=("high", "best-effort")[seed % 2]), f"order {seed}")
            assert_launches_were_in_graphs(self, self.scrape_at_rest(self.port), 100)
            daemon.terminate()
            daemon.wait()

    def test_shadow(self):
        self.start_hostile_gpu(5)
        self.assertEqual([self.failure_of(name, window=SHADOW) for name in ABOUT_ORDER], [None] * len(ABOUT_ORDER))


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    unittest.main(verbosity=2)
