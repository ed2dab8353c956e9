"""Modules that tools/setup installs for the distribution's Python, which may not be the one that runs the tests."""
import importlib
import sys


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        sys.path.append("/usr/lib/python3/dist-packages")
        return importlib.import_module(name)
