#!/usr/bin/env python3
"""The functions that an executor may call and that the software driver has: what a fault driver must export.

usage: fault_driver_functions.py NM LIBRARY TABLE OUTPUT
"""
import re
import subprocess
import sys

nm, library, table, output = sys.argv[1:]
exported = {line.split()[-1] for line in
            subprocess.run([nm, "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE, text=True)
            .stdout.splitlines()}
with open(table, encoding="ascii") as rows:
    called = re.findall(r"^TALLY_DRIVER_FUNCTION\((\w+)\)$", rows.read(), re.MULTILINE)
with open(output, "w", encoding="ascii") as file:
    file.writelines(f"TALLY_DRIVER_FUNCTION({symbol})\n" for symbol in called if symbol in exported)
