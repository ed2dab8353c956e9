#!/usr/bin/env python3
"""Unmodified CUDA programs in a container's root file system with glibc 2.31; the daemon and its executors run outside.

All that is mounted into the image is the directory of tallyd's socket and the client's files, read-only.
"""
import os
import shutil
import subprocess
import sys
import unittest

from support.daemon_fixture import program
from support.full_stack import BUILD, FullStackTest, not_built
from support.old_image import IMAGE_DRIVER, OldImage, Unavailable

CLIENT = os.path.join(BUILD, "lib", "tally", "client")
PROGRAMS = os.path.join(BUILD, "tests", "old_image")
RUNTIME = os.path.join(os.environ["TALLY_TEST_CUDA_ROOT"], "lib64")
MISSING = not_built(*(os.path.join(PROGRAMS, name) for name in ("static_runtime", "shared_runtime")))
IMAGE = None


class OldImageTest(FullStackTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.mounts = {"/opt/programs": PROGRAMS, "/opt/cuda": RUNTIME, "/run/tally": self.directory}
        # As it is installed: tally-run finds the library beside itself.
        self.installed = os.path.join(self.directory, "installed")
        os.makedirs(os.path.join(self.installed, "bin"))
        shutil.copy(program("tally-run"), os.path.join(self.installed, "bin"))
        shutil.copytree(CLIENT, os.path.join(self.installed, "lib", "tally", "client"), symlinks=True)

    def run_with_launcher(self, *command):
        return IMAGE.run(["/opt/tally/bin/tally-run", *command], {**self.mounts, "/opt/tally": self.installed},
                         {"LD_LIBRARY_PATH": "/opt/cuda"})

    def run_with_library(self, *command):
        """The library lies where the image has NVIDIA's; no variable says anything about Tally."""
        return IMAGE.run(command, {**self.mounts, IMAGE_DRIVER: os.path.join(CLIENT, "libcuda.so.1")},
                         {"LD_LIBRARY_PATH": "/opt/cuda"})

    def assert_output(self, result, words):
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertIn(words, result.stdout)
        print(next(line for line in result.stdout.splitlines() if words in line), file=sys.stderr)

    def test_image_is_as_old_as_it_says(self):
        self.assert_output(IMAGE.run(["/lib/x86_64-linux-gnu/libc.so.6"], {}), "release version 2.31")
        host = IMAGE.run(["/opt/programs/true"], {"/opt/programs": os.path.dirname(shutil.which("true"))})
        self.assertNotEqual(host.returncode, 0)
        self.assertRegex(host.stderr, "version `GLIBC_2.3[3-9]' not found")

    def test_programs_without_cuda_run_as_ever(self):
        result = self.run_with_launcher("sh", "-c", "busybox grep -c libcuda.so.1 /proc/self/maps; exit 3")
        self.assertEqual((result.returncode, result.stderr), (3, ""))
        self.assertGreater(int(result.stdout), 0)

    def test_programs_under_tally_run(self):
        for runtime in ("static_runtime", "shared_runtime"):
            with self.subTest(runtime):
                self.assert_output(self.run_with_launcher("/opt/programs/" + runtime), " OK")

    def test_programs_with_the_library_in_the_drivers_place(self):
        for runtime in ("static_runtime", "shared_runtime"):
            with self.subTest(runtime):
                self.assert_output(self.run_with_library("/opt/programs/" + runtime), " OK")

    def test_library_that_needs_more_is_one_sentence(self):
        """What a glibc that is older still would say: here a library that needs this machine's."""
        library = os.path.join(self.installed, "lib", "tally", "client", "libcuda.so.1")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], text=True, check=True,
                       input="int pthread_once(int*, void (*)(void)); int f(void) { return pthread_once(0, 0); }")
        result = self.run_with_launcher("sh", "-c", "echo never")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, r"^tally-run: cannot run '/bin/sh' under Tally: its loader "
                         r"'/lib64/ld-linux-x86-64.so.2' cannot load .* glibc 2.28 or newer; it says: "
                         r".*version `GLIBC_2.3[0-9]' not found.*\n$")


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built here:", *MISSING)
        sys.exit(0)
    try:
        IMAGE = OldImage(os.path.join(os.environ["TALLY_TEST_SOURCE"], "build", "old-image"))
    except Unavailable as reason:
        print("SKIPPED ALL: no image with glibc 2.31:", reason)
        sys.exit(0)
    unittest.main(verbosity=2)
