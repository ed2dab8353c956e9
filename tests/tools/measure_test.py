#!/usr/bin/env python3
"""tests/gpu/measure.py ends what outlives its limit, keeps what it wrote, and knows the options of what it starts."""
import contextlib
import io
import os
import re
import shlex
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "gpu"))
import measure  # noqa: E402


def run(parts, *arguments):
    """measure.py with these parts: exit status, what it printed."""
    printed = io.StringIO()
    with mock.patch.object(measure, "PARTS", parts), mock.patch.object(sys, "argv", ["measure.py", *arguments]), \
         contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            measure.main()
            return 0, printed.getvalue()
        except SystemExit as ended:
            return ended.code, printed.getvalue()


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as text:
        return text.read()


class Measure(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = os.path.join(directory.name, "results")

    def test_scripts_know_the_options_they_are_given(self):
        def is_script(word):
            return word.startswith(("bench/", "tests/", "tools/"))

        for name, (_, _, whole) in measure.PARTS.items():
            self.assertTrue(any(map(is_script, shlex.split(whole))), name)
        commands = [(name, command) for name, (_, _, whole) in measure.PARTS.items() for command in re.split("&&|;", whole)]
        for name, command in commands:
            script = next(filter(is_script, shlex.split(command)), None)
            if script is None:  # as `wait`
                self.assertNotIn(" --", command, name)
                continue
            # A program of the build has its source somewhere else; it is measured without options.
            source = "" if script == "bench/queues" else read(script)
            if "from parts import" in source:  # they are defined there
                source += read(os.path.join(os.path.dirname(script), "parts.py"))
            # What is quoted goes on to another program.
            for option in re.findall(r"(?<=\s)--[a-z-]+", re.sub(r"'[^']*'", "", command)):
                self.assertRegex(source, re.escape(option) + r"\b(?!-)", f"{name}: {script} has no {option}")

    def test_a_part_that_outlives_its_limit_is_ended_with_its_children(self):
        parts = {"long": (1, 5, "echo early >{out}/page.md; sleep 71 & echo $! >{out}/child; sleep 72")}
        began = time.monotonic()
        status, printed = run(parts, "--output", self.folder, "long")
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(status, 0, printed)
        self.assertIn("ended at its limit", printed)
        with open(os.path.join(self.folder, "long", "child"), encoding="ascii") as text:
            child = text.read().strip()
        # A process that has just ended has no line, or no file any more.
        with self.assertRaises((FileNotFoundError, ProcessLookupError)):
            while time.monotonic() - began < 30:
                with open(f"/proc/{child}/cmdline", encoding="ascii") as line:
                    self.assertIn("sleep", line.read() or "sleep")

    def test_a_failure_is_told_and_what_comes_after_it_runs(self):
        parts = {"bad": (1, 10, "echo why; exit 3"), "good": (1, 10, "touch {out}/here")}
        status, printed = run(parts, "--output", self.folder, "bad", "good:5")
        self.assertEqual(status, 1)
        self.assertRegex(printed, r"bad: at most 10 s \.\.\. FAILED \(3\)")
        self.assertRegex(printed, r"good: at most 5 s \.\.\. ok")
        self.assertTrue(os.path.exists(os.path.join(self.folder, "good", "here")))
        with open(os.path.join(self.folder, "bad.log"), encoding="ascii") as log:
            self.assertEqual(log.read(), "why\n")

    def test_what_it_does_not_know_is_refused_before_anything_runs(self):
        parts = {"good": (1, 10, "touch {out}/here")}
        for word in ("bad", "good:soon", "good:-1"):
            status, printed = run(parts, "--output", self.folder, "good", word)
            self.assertEqual(status, 2, printed)
            self.assertFalse(os.path.exists(self.folder))


if __name__ == "__main__":
    unittest.main()
