#!/usr/bin/env python3
"""The tables of proto/driver against the installed toolkit, and the comparison itself against doctored toolkits.

usage: driver_tables_test.py CUDA_ROOT COMPILER [unittest arguments]
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "proto/driver"))
import check_parity  # noqa: E402
import generate  # noqa: E402
import support_page  # noqa: E402

CUDA_ROOT, COMPILER = "", ""


class Toolkit:
    """A copy of the toolkit's headers and stub that a test may change."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        (self.root / "include").mkdir()
        (self.root / "lib64/stubs").mkdir(parents=True)
        for header in ("cuda.h", "cudaTypedefs.h", "cudaProfiler.h", "cudaProfilerTypedefs.h"):
            shutil.copy(pathlib.Path(CUDA_ROOT) / "include" / header, self.root / "include" / header)
        shutil.copy(pathlib.Path(CUDA_ROOT) / check_parity.STUB, self.root / check_parity.STUB)

    def replace(self, header, old, new):
        path = self.root / "include" / header
        text = path.read_text()
        if old not in text:
            raise AssertionError(f"{header} has no '{old}'")
        path.write_text(text.replace(old, new, 1))

    def make_stub(self, names):
        source = "".join(f"int {name}(void) {{ return 34; }}\n" for name in sorted(names))
        subprocess.run([COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(self.root / check_parity.STUB)],
                       input=source, text=True, check=True)

    def differences(self, table_dir=generate.HERE):
        return check_parity.differences(self.root, COMPILER, table_dir)


class Parity(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "cuda").mkdir()
        self.toolkit = Toolkit(self.folder / "cuda")

    def test_installed_toolkit_is_what_the_tables_say(self):
        self.assertEqual(check_parity.differences(CUDA_ROOT, COMPILER, generate.HERE), [])

    def test_an_untouched_copy_has_no_difference(self):
        self.assertEqual(self.toolkit.differences(), [])

    def test_new_function_of_a_new_toolkit_is_named(self):
        self.toolkit.replace("cuda.h", "#define CUDA_VERSION 13000", "#define CUDA_VERSION 13010")
        self.toolkit.replace("cuda.h", "CUresult CUDAAPI cuInit(", "CUresult CUDAAPI cuFoo(int a);\nCUresult CUDAAPI cuInit(")
        self.assertEqual(self.toolkit.differences(), ["cuda.h 13.1 declares cuFoo: no row in driver_api.tsv"])

    def test_new_abi_of_a_known_function_is_named(self):
        self.toolkit.replace("cuda.h", "CUresult CUDAAPI cuInit(",
                             "CUresult CUDAAPI cuInit_v2(int a);\nCUresult CUDAAPI cuInit(")
        self.toolkit.replace("cudaTypedefs.h", "typedef CUresult (CUDAAPI *PFN_cuInit_v2000)",
                             "typedef CUresult (CUDAAPI *PFN_cuInit_v13010)(int a);\ntypedef CUresult (CUDAAPI *PFN_cuInit_v2000)")
        self.assertEqual(self.toolkit.differences(), [
            "cuda.h 13.0 declares cuInit_v2: no row in driver_api.tsv",
            "cudaTypedefs.h 13.0 knows cuInit of CUDA 13.1: not in getproc_map.tsv"])

    def test_function_that_left_the_header_is_named(self):
        self.toolkit.replace("cuda.h", "CUresult CUDAAPI cuDriverGetVersion(", "CUresult CUDAAPI tuDriverGetVersion(")
        self.assertEqual(self.toolkit.differences(), ["driver_api.tsv has cuDriverGetVersion: cuda.h 13.0 does not declare it"])

    def test_typedef_that_left_is_named(self):
        self.toolkit.replace("cudaTypedefs.h", "*PFN_cuMemAlloc_v3020)", "*PFN_other)")
        self.assertEqual(self.toolkit.differences(), ["getproc_map.tsv has cuMemAlloc of CUDA 3.2: not in cudaTypedefs.h 13.0"])

    def test_stub_is_compared_both_ways(self):
        names = check_parity.exported(pathlib.Path(CUDA_ROOT) / check_parity.STUB)
        self.toolkit.make_stub(names - {"cuMemFree_v2"} | {"cuFoo_ptsz"})
        self.assertEqual(self.toolkit.differences(), [
            "lib64/stubs/libcuda.so of 13.0 exports cuFoo_ptsz: no row in driver_api.tsv",
            "driver_api.tsv has cuMemFree_v2: lib64/stubs/libcuda.so of 13.0 does not export it"])

    def test_mistakes_of_the_tables_are_named(self):
        shutil.copy(generate.HERE / "getproc_map.tsv", self.folder)
        table = (generate.HERE / "driver_api.tsv").read_text()
        twin = next(line for line in table.splitlines() if line.startswith("cuGraphLaunch_ptsz\t"))
        lines = table.replace(twin, "cuGraphLaunch_ptsz\tasync\thand").splitlines()
        refused = next(i for i, line in enumerate(lines) if line.startswith("cuLaunchGrid\t"))
        lines[refused] = "cuLaunchGrid\trefused"
        (self.folder / "driver_api.tsv").write_text("\n".join(lines) + "\n")
        self.assertEqual(self.toolkit.differences(self.folder), [
            "cuGraphLaunch_ptsz is a per-thread form, but its row says 'async'",
            "cuLaunchGrid is refused without a reason"])


class Refusals(unittest.TestCase):
    def test_partial_refusals_name_their_function(self):
        """RefuseUse("cuX: why"): the name is what the executor counts."""
        names = {row.symbol for row in generate.read_table()}
        found = []
        for source in (ROOT / "client-shim").rglob("*.cc"):
            found += re.findall(r'RefuseUse\(\s*"([^"]*)"', source.read_text())
        self.assertGreater(len(found), 5)
        for text in found:
            self.assertTrue(text.split(":")[0] in names, f"RefuseUse(\"{text}\") names no function of the table")


class SupportPage(unittest.TestCase):
    def test_committed_page_is_current(self):
        self.assertTrue(support_page.PAGE.read_text() == support_page.write_page(CUDA_ROOT),
                        f"stale: run proto/driver/support_page.py --cuda-root {CUDA_ROOT}")

    def test_page_shows_every_function(self):
        text = support_page.write_page(CUDA_ROOT)
        for row in generate.read_table():
            if row.verdict == "twin":
                self.assertIn(f"`{row.how}` and `{row.symbol[len(row.how):]}`", text)
            else:
                self.assertEqual(text.count(f"| `{row.symbol}`"), 1, row.symbol)


if __name__ == "__main__":
    CUDA_ROOT, COMPILER = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
