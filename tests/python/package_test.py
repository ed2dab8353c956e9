#!/usr/bin/env python3
"""The package `tally`: over a tallyd with a scripted executor, without one, and with a libcuda that takes hints."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TALLY_TEST_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "python"), os.path.join(SOURCE, "tests", "integration")]

import tally
from support.daemon_fixture import BIN, DaemonTest

os.environ["PATH"] = BIN + os.pathsep + os.environ["PATH"]
PACKAGE = os.path.join(SOURCE, "python")


class OverADaemon(DaemonTest):
    def test_status_sessions_executors(self):
        self.start_daemon()
        session = self.session(tenant="a \"tenant\"")
        self.assertEqual(tally.status(self.socket_path)["socket"], self.socket_path)
        (row,) = tally.sessions(socket=self.socket_path)
        self.assertEqual((row["id"], row["tenant"]), (session.id, "a \"tenant\""))
        self.assertEqual(row, self.ctl_json("ps")[0] | {"age_ns": row["age_ns"]})
        self.assertEqual(tally.executors(self.socket_path)[0]["domain"], row["domain"])

    def test_a_trace_is_a_file(self):
        self.start_daemon()
        path = os.path.join(self.directory, "-t r a c e.json")
        self.assertEqual(tally.trace(path, seconds=0.01, socket=self.socket_path), path)
        with open(path, encoding="ascii") as file:
            self.assertIn("traceEvents", json.load(file))
        with self.assertRaisesRegex(tally.TallyError, "not a number from 0.001 to 60"):
            tally.trace(path, seconds=100, socket=self.socket_path)
        with self.assertRaises(ValueError):
            tally.trace("-", socket=self.socket_path)

    def test_no_daemon_is_one_sentence(self):
        with self.assertRaisesRegex(tally.TallyError, r"^no tallyd serves '.*'[^\n]*$"):
            tally.sessions(self.socket_path)

    def test_no_tallyctl_is_one_sentence(self):
        for path, words in (("/nowhere", "there is no tallyctl"), (self.directory, "cannot start")):
            code = "import tally\ntry: tally.status()\nexcept tally.TallyError as e: print(e)"
            printed = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True,
                                     env={"PYTHONPATH": PACKAGE, "TALLYCTL": path, "PATH": "/nowhere"}).stdout
            self.assertIn(words, printed)


class Hints(unittest.TestCase):
    def said(self, code, **env):
        return subprocess.run([sys.executable, "-c", "import tally\n" + code], stdout=subprocess.PIPE, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": PACKAGE, **env}).stdout.split()

    def test_without_tally_nothing_happens(self):
        self.assertEqual(self.said("print(tally.expect_work(100))"), ["False"])
        for wrong in (-1, 1_000_001):
            with self.assertRaises(ValueError):
                tally.expect_work(wrong)

    def test_it_reaches_what_is_preloaded_or_loaded_later(self):
        with tempfile.TemporaryDirectory() as directory:
            library = os.path.join(directory, "libcuda.so.1")
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-Wl,-soname,libcuda.so.1", "-o", library, "-"], check=True, text=True,
                           input="#include <stdio.h>\nint tally_expect_work(unsigned long us) {"
                                 " printf(\"%lu\\n\", us); fflush(stdout); return us == 7; }")
            code = "print(tally.expect_work(400), flush=True); print(tally.expect_work(7))"
            self.assertEqual(self.said(code, LD_PRELOAD=library), ["400", "True", "7", "False"])
            later = f"print(tally.expect_work(1), flush=True)\nimport ctypes; ctypes.CDLL({library!r})\n" + code
            self.assertEqual(self.said(later), ["False", "400", "True", "7", "False"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
