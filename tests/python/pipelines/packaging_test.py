"""The package as files: pip and Debian's packages install the same, and no name is hidden by an import."""
import ast
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

    def test_no_import_in_a_function_hides_a_module(self):
        """`import torch.x` makes `torch` a name of the function, which has no value before that line."""
        def names(statement):
            return {(name.asname or name.name).split(".")[0] for name in statement.names} if isinstance(statement, ast.Import) else set()
        for path in glob.glob(os.path.join(stub.PACKAGE, "**", "*.py"), recursive=True):
            module = ast.parse(text("python", os.path.relpath(path, stub.PACKAGE)))
            imported = set().union(*map(names, module.body))
            hidden = [f"{path}:{node.lineno}" for function in ast.walk(module) if isinstance(function, ast.FunctionDef)
                      for node in ast.walk(function) if names(node) & imported]
            self.assertEqual(hidden, [])


if __name__ == "__main__":
    unittest.main()
