#!/usr/bin/env python3
"""Programs that hand the driver machine code, on the software driver, which can run nothing but PTX: they run where the
PTX travels with it, and their kernels can be given other forms."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support.daemon_fixture import DaemonTest, program

PROGRAM = pathlib.Path(os.environ["TALLY_TEST_BUILD"]) / "tests" / "run_compiled"
NO_BINARY = "209"


class KeptPtx(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="tally-kept-ptx.")
        self.addCleanup(self.place.cleanup)

    def run_program(self, *arguments, **environment):
        return subprocess.run([program("tally-run"), "--embedded", "--driver", "sim", PROGRAM, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=110, check=False,
                              env={**os.environ, "HOME": self.place.name, "CUDA_CACHE_PATH": self.place.name,
                                   **environment}).stdout

    def assert_runs(self, *arguments, **environment):
        output = self.run_program(*arguments, **environment)
        self.assertEqual(output.splitlines()[-1:], ["OK"], output)

    def assert_no_binary(self, *arguments, **environment):
        output = self.run_program(*arguments, **environment)
        self.assertRegex(output.splitlines()[-1], f"^cu(Module|Library)Load.*: {NO_BINARY}$", output)

    def test_compilers(self):
        for mode in ("nvrtc", "nvrtc_library", "nvrtc_separate", "nvjitlink"):
            with self.subTest(mode):
                self.assert_runs(mode)                          # compiled
                self.assert_runs(mode)                          # found in the compilers' cache
                self.assert_runs(mode, CUDA_CACHE_DISABLE="1")  # neither found nor kept
                self.assert_no_binary(mode, TALLY_KEEP_PTX="0")

    def test_linker_of_the_driver(self):
        self.assert_runs("culink")

    def test_no_other_device_is_served(self):
        self.assert_no_binary("older")

    def test_cache_of_triton(self):
        cache = pathlib.Path(self.place.name) / "cache"
        folder = cache / "KEYOFTHEKERNEL"
        folder.mkdir(parents=True)
        (cache / "KEYOFALAUNCHER").mkdir()
        self.assert_runs("make", folder)
        elsewhere = pathlib.Path(self.place.name) / "other.cubin"
        shutil.copy(folder / "mix.cubin", elsewhere)
        home = pathlib.Path(self.place.name) / "home"
        (home / ".triton").mkdir(parents=True)
        (home / ".triton" / "cache").symlink_to(cache)

        self.assert_runs("path", folder / "mix.cubin")
        self.assert_runs("memory", elsewhere, TRITON_CACHE_DIR=str(cache))
        self.assert_runs("memory", elsewhere, TRITON_HOME=str(home))
        self.assert_runs("memory", elsewhere, HOME=str(home))
        self.assert_no_binary("memory", elsewhere)
        self.assert_no_binary("memory", elsewhere, TRITON_CACHE_DIR=str(cache), TALLY_KEEP_PTX="0")
        self.assert_no_binary("path", folder / "mix.cubin", TALLY_KEEP_PTX="0")
        self.assert_no_binary("path", elsewhere)
        # Two files that lie side by side for another reason.
        (folder / "mix.json").unlink()
        self.assert_no_binary("path", folder / "mix.cubin")
        self.assert_no_binary("memory", elsewhere, TRITON_CACHE_DIR=str(cache))


class OtherForms(DaemonTest):
    executor = ""  # the real one, beside tallyd

    def test_machine_code_runs_in_slices(self):
        self.start_daemon("--transforms", "all", "--cache-directory", os.path.join(self.directory, "cache"),
                          env={"TALLY_FORCE_FORM": "slices"})
        for mode in ("nvrtc", "nvjitlink"):
            done = subprocess.run([program("tally-run"), "--socket", self.socket_path, "--priority", "best-effort",
                                   PROGRAM, mode], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=90, check=False,
                                  env={**os.environ, "CUDA_CACHE_PATH": os.path.join(self.directory, "compiled")})
            self.assertEqual(done.stdout.splitlines()[-1:], ["OK"], done.stdout)
        kernels = [kernel for kernel in self.ctl_json("kernels") if kernel["name"] == "mix"]
        self.assertTrue(kernels)
        for kernel in kernels:
            self.assertTrue(kernel["form"].startswith("slices"), kernel)


if __name__ == "__main__":
    unittest.main(verbosity=2)
