#!/usr/bin/env python3
"""tools/demo's progress while it builds, and what it says under its table."""
import json
import os
import pty
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
import demo_table  # noqa: E402
import progress  # noqa: E402

BUILD = "for n in $(seq 40); do echo \"[$n/40] Building $n\"; done; echo 'error: x'; exit 3"


class Progress(unittest.TestCase):
    def test_time_left_is_that_of_the_steps_so_far(self):
        self.assertEqual(progress.line_of(5, 800, 10), "  [5/800] 10 s")  # too early
        self.assertEqual(progress.line_of(200, 800, 100), "  [200/800] 2 min, about 5 min left")
        self.assertEqual(progress.line_of(800, 800, 80), "  [800/800] 80 s")

    def run_build(self, stdout):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            result = subprocess.run([sys.executable, os.path.join(TOOLS, "progress.py"), log, "bash", "-c", BUILD],
                                    stdout=stdout, text=True, check=False, timeout=60)
            with open(log, encoding="utf-8") as file:
                return result, file.read()

    def test_a_line_for_each_tenth_and_the_log_is_whole(self):
        result, log = self.run_build(subprocess.PIPE)
        self.assertEqual(result.returncode, 3)  # the build's
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines],
                         [f"[{n}/40]" for n in (1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40)])
        self.assertEqual(len(log.splitlines()), 41)
        self.assertTrue(log.endswith("error: x\n"))

    def test_one_line_on_a_terminal(self):
        terminal, end = pty.openpty()
        self.addCleanup(os.close, terminal)
        self.run_build(end)
        os.close(end)
        text = os.read(terminal, 1 << 16).decode()
        self.assertEqual(text.count("\n"), 1)
        self.assertEqual(text.count("\r  ["), 40)


class Remarks(unittest.TestCase):
    QUIET = {"p50_us": 100, "p99_us": 200, "max_us": 300}
    SLOWER = {"p50_us": 110, "p99_us": 210, "max_us": 200}

    def test_nothing_is_said_of_good_figures(self):
        self.assertEqual(demo_table.remarks(0.1, self.QUIET, self.SLOWER), [])

    def test_alone_slower_than_beside_is_said(self):
        for key in ("p50_us", "p99_us"):
            (sentence,) = demo_table.remarks(0.1, {**self.QUIET, key: 999}, self.SLOWER)
            self.assertIn("slower alone than beside", sentence)

    def test_a_busy_machine_is_said(self):
        (sentence,) = demo_table.remarks(0.8, self.QUIET, self.SLOWER)
        self.assertIn("80 % busy", sentence)

    def test_a_busy_machine_is_seen(self):
        with subprocess.Popen(["bash", "-c", "for i in $(seq $(nproc)); do timeout 20 bash -c 'while :; do :; done' & done; wait"]) as load:
            try:
                self.assertGreater(demo_table.busy_share(), 0.5)
            finally:
                subprocess.run(["pkill", "-P", str(load.pid)], check=False)
                load.terminate()

    def test_rows_are_read_from_what_the_programs_print(self):
        with tempfile.TemporaryDirectory() as folder:
            service, training = os.path.join(folder, "service"), os.path.join(folder, "training")
            with open(service, "w", encoding="ascii") as file:
                file.write("warming up\n" + json.dumps(self.QUIET) + "\n")
            with open(training, "w", encoding="ascii") as file:
                file.write('{"iterations_per_second": 12.34}\n')
            self.assertEqual(demo_table.row("alone", service).split(), ["alone", "100", "200", "300", "-"])
            self.assertEqual(demo_table.row("beside", service, training).split()[-1], "12.3")


if __name__ == "__main__":
    unittest.main()
