#!/usr/bin/env python3
"""client_file_test.py VERSION FILE|DIRECTORY: do these files, as built, need glibc VERSION at most, and nothing else?"""
import os
import re
import subprocess
import sys

GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], stdout=subprocess.PIPE, text=True, check=True).stdout


def version_needs(path):
    """(symbol, version) of each dynamic symbol that has to come from elsewhere, and of each entry of the table of needs."""
    for line in readelf("--dyn-syms", path).splitlines():
        words = line.split()
        if len(words) > 7 and words[6] == "UND" and "@" in words[7]:
            yield tuple(re.split("@+", words[7], maxsplit=1))
    for version in re.findall(r"Name: (\S+)\s+Flags:.*Version:", readelf("--version-info", path)):
        yield "(table)", version


def order(version):
    match = re.fullmatch(r"GLIBC_([0-9.]+)", version)
    # What is no numbered version of glibc (GLIBC_PRIVATE, GLIBCXX_3.4, GLIBC_ABI_DT_RELR) is beyond any limit.
    return tuple(int(part) for part in match.group(1).split(".")) if match else (sys.maxsize,)


def check(limit, path):
    kind = re.search(r"^\s*Type:\s+(\S+)", readelf("--file-header", path), re.M).group(1)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path))
    loader = re.findall(r"Requesting program interpreter: (.*)\]", readelf("--program-headers", path))
    needs = sorted(set(version_needs(path)), key=lambda need: order(need[1]))
    wrong = [f"{path}: {name} needs {version}" for name, version in needs if order(version) > order("GLIBC_" + limit)]
    wrong += [f"{path}: needs {library}, which an image may lack" for library in needed if library not in GLIBC]
    if (loader or needed) and not needs:
        wrong.append(f"{path}: has a loader and needs no version: was it read at all?")
    newest = needs[-1][1] if needs else "none, it is static"
    print(f"{path}: {kind}, {len(needed)} libraries, {len(needs)} version needs, the newest {newest}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return not wrong


def main(limit, path):
    files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    results = [check(limit, file) for file in files]
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
