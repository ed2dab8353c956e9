"""What pip and Debian's packages install is the same: every part of the package, and the backend's name."""
import glob
import os
import re
import unittest

import stub

ROOT = os.path.join(stub.PACKAGE, os.pardir)


def text(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


class Installed(unittest.TestCase):
    def test_the_backend_has_one_name(self):
        (of_pip,) = re.findall(r'\[project\.entry-points\.torch_dynamo_backends\]\n(\w+) = "([\w.:]+)"', text("python", "pyproject.toml"))
        (of_packages,) = re.findall(r"\[torch_dynamo_backends\]\\n(\w+) = ([\w.:]+)\\n", text("cmake", "tally_install.cmake"))
        self.assertEqual(of_pip, of_packages)
        module, function = of_pip[1].split(":")
        self.assertIn(f"\ndef {function}(", text("python", module.replace(".", "/") + ".py"))

    def test_pip_has_every_folder(self):
        folders = {os.path.relpath(os.path.dirname(path), stub.PACKAGE).replace(os.sep, ".")
                   for path in glob.glob(os.path.join(stub.PACKAGE, "**", "*.py"), recursive=True)}
        (listed,) = re.findall(r"^packages = \[(.*)\]$", text("python", "pyproject.toml"), re.MULTILINE)
        self.assertEqual(sorted(folders - {"."}), sorted(re.findall(r'"([\w.]+)"', listed)))


if __name__ == "__main__":
    unittest.main()
