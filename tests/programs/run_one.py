#!/usr/bin/env python3
"""Runs one program and compares its last line with the committed checksum.

usage: run_one.py [--timeout SECONDS] EXPECTED_FILE NAME COMMAND...
EXPECTED_FILE holds lines `NAME CHECKSUM`. Prints the program's output if anything is wrong.
"""
import argparse
import re
import subprocess
import sys


def read_expected(path):
    with open(path, encoding="ascii") as lines:
        return dict(line.split() for line in lines if line.strip() and not line.startswith("#"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=110)
    parser.add_argument("expected_file")
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()

    expected = read_expected(arguments.expected_file).get(arguments.name)
    if expected is None:
        sys.exit(f"{arguments.name} has no line in {arguments.expected_file}: add it (program --reference prints it)")
    try:
        run = subprocess.run(arguments.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=arguments.timeout, check=False)
    except subprocess.TimeoutExpired as timeout:
        sys.stdout.write((timeout.stdout or b"").decode(errors="replace"))
        sys.exit(f"{arguments.name}: no end after {arguments.timeout:g} s")
    output = run.stdout.decode(errors="replace")
    # stderr is mixed in, so the checksum is the last line that looks like one.
    lines = re.findall(r"^(?:checksum: ([0-9a-f]{16}) OK|FAILED: .*)$", output, re.MULTILINE)
    checksum = lines[-1] if lines else ""
    if run.returncode != 0 or checksum != expected:
        sys.stdout.write(output)
        sys.exit(f"{arguments.name}: exit status {run.returncode}, checksum {checksum or 'missing'}, "
                 f"expected {expected}")


if __name__ == "__main__":
    main()
