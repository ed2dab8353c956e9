#!/usr/bin/env python3
"""Compares (or with --update writes) expected_checksums.txt with what the programs' host references give.

usage: check_references.py [--update] EXPECTED_FILE PROGRAMS_DIRECTORY NAME...
Touches no GPU: every program is run with --reference. --update leaves the lines of programs that are not named.
"""
import os
import re
import subprocess
import sys


def reference_checksum(program):
    run = subprocess.run([program, "--reference"], stdout=subprocess.PIPE, timeout=60, check=False)
    match = re.search(r"checksum: ([0-9a-f]{16}) OK\n\Z", run.stdout.decode(errors="replace"))
    if run.returncode != 0 or not match:
        sys.exit(f"{program} --reference: exit status {run.returncode}, output {run.stdout!r}")
    return match.group(1)


def main():
    arguments = sys.argv[1:]
    update = arguments[:1] == ["--update"]
    if update:
        del arguments[0]
    if len(arguments) < 3:
        sys.exit(__doc__)
    expected_file, directory, names = arguments[0], arguments[1], arguments[2:]
    found = {name: reference_checksum(os.path.join(directory, name)) for name in names}
    committed = {}
    if os.path.exists(expected_file):
        with open(expected_file, encoding="ascii") as lines:
            committed = dict(line.split() for line in lines if line.strip() and not line.startswith("#"))
    if update:
        with open(expected_file, "w", encoding="ascii") as output:
            output.write("# NAME CHECKSUM, written by check_references.py --update. The same on every GPU and in software.\n")
            output.writelines(f"{name} {checksum}\n" for name, checksum in sorted({**committed, **found}.items()))
        return
    wrong = [name for name in sorted(found.keys() | committed.keys()) if found.get(name) != committed.get(name)]
    for name in wrong:
        print(f"{name}: committed {committed.get(name, 'nothing')}, reference gives {found.get(name, 'nothing')}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
