"""Builds stub.c once, as libtally-pipelines.so and as libcuda.so.1."""
import functools
import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.normpath(os.path.join(HERE, *[os.pardir] * 3, "python"))


@functools.lru_cache(maxsize=None)
def _folder():
    folder = tempfile.TemporaryDirectory()
    library = os.path.join(folder.name, "libtally-pipelines.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "stub.c")], check=True)
    shutil.copy(library, os.path.join(folder.name, "libcuda.so.1"))
    return folder


@functools.lru_cache(maxsize=None)
def _folder_without_driver():
    folder = tempfile.TemporaryDirectory()
    with open(os.path.join(folder.name, "libcuda.so.1"), "wb"):  # no library: nothing is looked for behind it
        return folder


def library():
    return os.path.join(_folder().name, "libtally-pipelines.so")


class StubTest(unittest.TestCase):
    """Tests whose process has the stub as its library; `calls()` is what was called since the test began."""

    def setUp(self):
        self.path = os.path.join(_folder().name, "calls")
        before = {name: os.environ.get(name) for name in ("TALLY_PIPELINES_LIBRARY", "TALLY_STUB_CALLS", "TALLY_STUB_REFUSES")}
        self.addCleanup(self._restore, before)
        os.environ.update(TALLY_PIPELINES_LIBRARY=library(), TALLY_STUB_CALLS=self.path)
        os.environ.pop("TALLY_STUB_REFUSES", None)
        with open(self.path, "w", encoding="ascii"):
            pass

    @staticmethod
    def _restore(before):
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def calls(self):
        with open(self.path, encoding="ascii") as file:
            return file.read().splitlines()

    def environment(self, driver=True):
        """For a further Python, with the stub's driver or without any, on a machine that has one as well."""
        where = _folder().name if driver else _folder_without_driver().name
        return {**os.environ, "PYTHONPATH": PACKAGE, "LD_LIBRARY_PATH": where, "PYTHONDONTWRITEBYTECODE": "1"}
