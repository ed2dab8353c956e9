#!/usr/bin/env python3
"""tools/tenants-demo prints what docs/results/tenants.md says that it does."""
import os
import subprocess
import unittest

from support.full_stack import BUILD, not_built

ROOT = os.environ["TALLY_TEST_SOURCE"]
MISSING = not_built()
SAYS = {"pod-like-client": "16777216 2 0", "forged-class": "may not run high-priority programs", "foreign-socket": "['tally.sock'] False",
        "stolen-descriptor": "refused: tenant 'robbed' may not", "revoked-grant": "was revoked",
        "faulting-neighbour": "none of its requests has failed", "quota-storm": "none of its requests has failed",
        "many-grants": "12 grants", "several-gpus": "which this machine does not have", "counting": "counting costs"}
# Smaller than what the page shows.
QUICK = {"TALLY_DEMO_GRANTS": "12", "TALLY_DEMO_STORM": "16"}


@unittest.skipIf(MISSING or os.getuid() != 0, f"needs root and what is not built: {MISSING}")
class Demo(unittest.TestCase):
    def test_each_case_ends_as_it_should(self):
        demo = os.path.join(ROOT, "tools", "tenants-demo")
        names = subprocess.run([demo, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        self.assertEqual(set(names), set(SAYS))
        with open(os.path.join(ROOT, "docs", "results", "tenants.md"), encoding="utf-8") as file:
            page = file.read()
        for name in names:
            result = subprocess.run([demo, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                                    env={**os.environ, **QUICK, "TALLY_BUILD": BUILD}, check=False)
            self.assertEqual(result.returncode, 0, result.stdout)
            if name == "counting" and "is not built" in result.stdout:
                continue
            self.assertIn(SAYS[name], result.stdout, name)
            self.assertIn(SAYS[name].replace("12 ", "1000 "), page.split(f"## {name}\n")[1].split("\n## ")[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
