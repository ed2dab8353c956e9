#!/usr/bin/env python3
"""Pipelines from Python: everything in tests/python/pipelines. Needs neither PyTorch nor a GPU."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, os.pardir, os.pardir, "python"), os.path.join(HERE, "pipelines")]

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.discover(os.path.join(HERE, "pipelines"), "*_test.py")
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
