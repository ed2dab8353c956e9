#!/usr/bin/env python3
"""tests/frameworks/run.py judges rightly: programs that agree, differ, fail, hang, vary from run to run or cannot run."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

FRAMEWORKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "frameworks")
# Stand-ins: this tally-run only says in the environment that it was there.
TALLY_RUN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
IS_TALLY=1 exec "$@"
"""
TALLYD = """#!/usr/bin/env python3
import os, sys, time
os.write(int(sys.argv[sys.argv.index("--ready-fd") + 1]), b"ready driver=none\\n")
time.sleep(100)
"""
HEAD = """# needs: packages=json gpus=0
{header}
\"\"\"For the test.\"\"\"
import os, random, sys, time
from shared.digest import Digest
tally = "IS_TALLY" in os.environ
digest = Digest()
digest.add("first", 1, "text", [2.5, b"bytes"])
"""


class Runner(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.programs = self.path("programs")
        os.mkdir(self.programs)
        os.symlink(os.path.abspath(os.path.join(FRAMEWORKS, "programs", "shared")), os.path.join(self.programs, "shared"))
        for name, text in (("tally-run", TALLY_RUN), ("tallyd", TALLYD)):
            with open(self.path(name), "w", encoding="ascii") as script:
                script.write(text)
            os.chmod(self.path(name), 0o755)

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def program(self, name, body, header="# tolerance: 1e-2", replace=None):
        text = HEAD.format(header=header) + body + "\ndigest.print()\n"
        if replace:
            text = text.replace(*replace)
        with open(os.path.join(self.programs, f"{name}.py"), "w", encoding="ascii") as source:
            source.write(text)

    def run_all(self, *arguments):
        """Exit status, the rows by name, the table."""
        run = subprocess.run([sys.executable, os.path.join(FRAMEWORKS, "run.py"), "--output", self.path("out.md"), "--programs", self.programs,
                              "--tally-run", self.path("tally-run"), "--timeout", "15", "--jobs", "2", *arguments],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, check=False,
                             env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        with open(self.path("out.json"), encoding="utf-8") as rows, open(self.path("out.md"), encoding="utf-8") as table:
            return run.returncode, {row["program"]: row for row in json.load(rows)["rows"]}, table.read()

    def test_good_programs(self):
        self.program("equal", "digest.add('second', 7)")
        self.program("near", "digest.add('second', 1000 + random.random())")
        self.program("elsewhere", "", replace=("packages=json", "packages=no_such_package"))
        self.program("many", "", replace=("gpus=0", "gpus=99"))
        status, rows, table = self.run_all()
        self.assertEqual({name: row["verdict"] for name, row in rows.items()},
                         {"equal": "same", "near": "within tolerance", "elsewhere": "not run: no package no_such_package",
                          "many": "not run: needs 99 GPUs"}, table)
        self.assertEqual(status, 0)
        self.assertIn("native runs differ by", rows["near"]["why"])

    def test_bad_programs(self):
        self.program("differs", "digest.add('second', tally)\ndigest.add('third', 3)")
        self.program("far", "digest.add('second', random.random() + 100 * tally)")
        self.program("raises", "if tally: raise ValueError('on purpose')")
        self.program("dies", "if tally: os.kill(os.getpid(), 9)")
        self.program("infinite", "digest.add('second', float('inf') if tally else 1.0)")
        self.program("native", "if not tally: sys.exit(3)")
        self.program("refused", "if tally: print('tally[1] W cuX is not supported by Tally: CUDA_ERROR_NOT_SUPPORTED'); sys.exit(1)")
        status, rows, table = self.run_all()
        self.assertEqual(status, 1)
        self.assertEqual({name: row["verdict"] for name, row in rows.items()},
                         {"differs": "DIFFERS", "far": "DIFFERS", "raises": "FAILED", "dies": "FAILED", "infinite": "FAILED",
                          "native": "native failed", "refused": "FAILED"}, table)
        self.assertEqual(rows["differs"]["why"], "in second")
        self.assertIn("line 9, in <module>: ValueError: on purpose", rows["raises"]["why"])
        self.assertEqual(rows["refused"]["tally"]["refused"], ["cuX"])
        self.assertIn("### raises, tally-run", table)

    def test_a_program_that_hangs_is_ended_and_says_where(self):
        self.program("hangs", "if tally: time.sleep(1000)")
        status, rows, _ = self.run_all("--timeout", "9.5")
        self.assertEqual((status, rows["hangs"]["verdict"]), (1, "FAILED"))
        self.assertIn("no end after 9.5 s, line 9 in <module>", rows["hangs"]["why"])

    def test_native_results_are_used_again(self):
        self.program("equal", "digest.add('second', 7)\nopen(%r, 'a').write('T' if tally else 'N')" % self.path("count"))
        self.run_all()
        status, rows, _ = self.run_all("--native-from", self.path("out.json"), "--only", "equal")
        self.assertEqual((status, rows["equal"]["verdict"]), (0, "same"))
        with open(self.path("count"), encoding="ascii") as count:
            self.assertEqual(count.read(), "NNTT")


if __name__ == "__main__":
    unittest.main(verbosity=2)
