#!/usr/bin/env python3
"""NOTICE lists what tools/setup installs and cmake/tally_dependencies.cmake asks for, with the same versions."""
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What CMake calls the things that NOTICE lists under their Debian packages.
CMAKE_NAMES = {"python3": "Python3", "libfmt-dev": "fmt", "libprotobuf-dev": "Protobuf", "libgrpc++-dev": "grpc++",
               "libzstd-dev": "libzstd", "liblz4-dev": "liblz4", "libsystemd-dev": "libsystemd",
               "prometheus-cpp-dev": "prometheus-cpp", "libcli11-dev": "CLI11", "nlohmann-json3-dev": "nlohmann_json",
               "libgtest-dev": "GTest", "libbenchmark-dev": "benchmark"}
# Parts of CMake, or found by what stands beside them.
WITHOUT_ROW = {"Threads", "PkgConfig"}
WITHOUT_VERSION = {"prometheus-cpp"}


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class Notice(unittest.TestCase):
    def setUp(self):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in read("NOTICE").splitlines()
                if line.startswith("|") and not line.startswith(("| what", "|---"))]
        for row in rows:
            self.assertEqual(len(row), 5, row)
            self.assertNotIn("", row)
        self.version_of = {row[1]: row[2] for row in rows}

    def test_lists_every_package_of_setup_and_no_other(self):
        text = read("tools", "setup")
        packages = set(" ".join(re.findall(r"packages\+?=\(([^)]*)\)", text)).split())
        self.assertGreater(len(packages), 10)
        self.assertEqual(set(self.version_of) - {"none"}, packages)

    def test_versions_are_those_that_cmake_asks_for(self):
        text = read("cmake", "tally_dependencies.cmake")
        asked = dict(re.findall(r"find_package\(([\w-]+) ?([\d.]*)", text))
        asked.update(re.findall(r"IMPORTED_TARGET ([\w+]+)>=([\d.]+)\)", text))
        self.assertEqual(text.count("pkg_check_modules("), text.count(">="))
        listed = {CMAKE_NAMES[package]: version for package, version in self.version_of.items() if package in CMAKE_NAMES}
        self.assertEqual(set(asked) - WITHOUT_ROW, set(listed))
        for name, version in asked.items():
            if name not in WITHOUT_ROW | WITHOUT_VERSION:
                self.assertEqual((name, version), (name, listed[name]))

    def test_cmake_itself(self):
        self.assertIn(f"cmake_minimum_required(VERSION {self.version_of['cmake']})", read("CMakeLists.txt"))

    def test_cuda_toolkit(self):
        self.assertIn(f"The CUDA toolkit, {self.version_of['none']} or newer", read("CMakeLists.txt"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
