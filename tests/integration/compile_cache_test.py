"""NVRTC finds under tally-run what it compiled before, in the same process and in later ones."""
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["TALLY_TEST_BIN"])
PROGRAM = pathlib.Path(os.environ["TALLY_TEST_BUILD"]) / "tests" / "compile_twice"


class CompileCache(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="tally-compile.")
        self.addCleanup(self.place.cleanup)

    def run_program(self, **environment):
        done = subprocess.run([BIN / "tally-run", "--embedded", "--driver", "sim", PROGRAM], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "CUDA_CACHE_PATH": self.place.name, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def files(self):
        return sorted(path for path in pathlib.Path(self.place.name).rglob("*") if path.is_file())

    def test_later_processes_find_the_same(self):
        first = self.run_program()
        self.assertEqual(len(first.splitlines()), 3)
        self.assertEqual(first.splitlines()[0], first.splitlines()[2])
        kept = self.files()
        self.assertGreaterEqual(len(kept), 2)
        modified = {path: path.stat().st_ino for path in kept}
        self.assertEqual(self.run_program(), first)
        # Nothing was compiled and kept anew: that would have replaced files.
        self.assertEqual({path: path.stat().st_ino for path in self.files()}, modified)

    def test_what_it_finds_is_what_it_gives(self):
        first = self.run_program()
        for path in self.files():
            path.write_bytes(b"damaged" + path.read_bytes()[7:])
        self.assertEqual(self.run_program(), first)
        self.assertEqual(self.run_program(), first)

    def test_can_be_turned_off(self):
        self.assertEqual(self.run_program(CUDA_CACHE_DISABLE="1"), self.run_program())
        self.assertGreaterEqual(len(self.files()), 2)
        for path in self.files():
            path.unlink()
        self.run_program(CUDA_CACHE_DISABLE="1")
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    unittest.main()
