#!/usr/bin/env python3
"""Compares the two tables of this folder with an installed CUDA toolkit and names every difference.

usage: check_parity.py --cuda-root DIR [--compiler CC] [--table-dir DIR]

* driver_api.tsv has a row for each function that cuda.h and cudaProfiler.h declare (every ABI of it), and no other;
* the toolkit's stub library exports exactly the rows;
* a function whose name ends in _ptsz or _ptds is the twin of a row, or refused;
* getproc_map.tsv says what cudaTypedefs.h and cudaProfilerTypedefs.h say: which ABI came with which CUDA version.
A new toolkit shows up as lines like "cuda.h 13.1 declares cuFoo: no row in driver_api.tsv". Exit status 1 then.
"""
import argparse
import pathlib
import re
import subprocess
import sys

import generate

STUB = "lib64/stubs/libcuda.so"


def toolkit_version(cuda_root):
    text = (pathlib.Path(cuda_root) / "include/cuda.h").read_text()
    number = int(re.search(r"^#define CUDA_VERSION (\d+)", text, re.M).group(1))
    return f"{number // 1000}.{number % 1000 // 10}"


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    names = (line.split()[-1].split("@")[0] for line in lines.stdout.splitlines())
    return {name for name in names if name.startswith("cu")}


def typedefs(cuda_root):
    """(base name, first CUDA version, per-thread) of every ABI the typedef headers know."""
    found = set()
    for header in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
        text = (pathlib.Path(cuda_root) / "include" / header).read_text()
        for base, version, twin in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
            found.add((base, int(version), bool(twin)))
    return found


def mapped(table_dir):
    """The same from getproc_map.tsv, with the symbol each row leads to."""
    result = {}
    for line in (table_dir / "getproc_map.tsv").read_text().splitlines()[1:]:
        base, version, flag, symbol = line.split("\t")[:4]
        result[(base, int(version), flag.startswith("per-thread"))] = symbol
    return result


def abi_text(abi):
    base, version, per_thread = abi
    return f"{base} of CUDA {version // 1000}.{version % 1000 // 10}" + (" (per-thread stream)" if per_thread else "")


def differences(cuda_root, compiler, table_dir):
    rows = generate.read_table(table_dir)
    names = {row.symbol for row in rows}
    version = toolkit_version(cuda_root)
    declared = generate.read_prototypes(cuda_root, compiler)
    found = []
    for name in sorted(name for name in names if sum(row.symbol == name for row in rows) > 1):
        found.append(f"driver_api.tsv has several rows for {name}")
    found += [f"cuda.h {version} declares {name}: no row in driver_api.tsv" for name in sorted(declared.keys() - names)]
    found += [f"driver_api.tsv has {name}: cuda.h {version} does not declare it" for name in sorted(names - declared.keys())]
    stub = exported(pathlib.Path(cuda_root) / STUB)
    found += [f"{STUB} of {version} exports {name}: no row in driver_api.tsv" for name in sorted(stub - names)]
    found += [f"driver_api.tsv has {name}: {STUB} of {version} does not export it" for name in sorted(names - stub)]
    for row in rows:
        is_twin_name = re.search(r"_pt[sd][zs]$", row.symbol) is not None
        if is_twin_name and row.verdict not in ("twin", "refused"):
            found.append(f"{row.symbol} is a per-thread form, but its row says '{row.verdict}'")
        if row.verdict == "twin" and (row.how not in names or not row.symbol.startswith(row.how)):
            found.append(f"{row.symbol} is the twin of '{row.how}', which is no row of that name")
        if row.verdict == "refused" and len(row.note) < 10:
            found.append(f"{row.symbol} is refused without a reason")
    known, ours = typedefs(cuda_root), mapped(table_dir)
    found += [f"cudaTypedefs.h {version} knows {abi_text(abi)}: not in getproc_map.tsv" for abi in sorted(known - ours.keys())]
    found += [f"getproc_map.tsv has {abi_text(abi)}: not in cudaTypedefs.h {version}" for abi in sorted(ours.keys() - known)]
    for abi, symbol in sorted(ours.items()):
        if symbol not in names:
            found.append(f"getproc_map.tsv leads {abi_text(abi)} to {symbol}: no row in driver_api.tsv")
    found += [f"{name} has a row, but getproc_map.tsv leads nothing to it" for name in sorted(names - set(ours.values()))]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-root", required=True)
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--table-dir", type=pathlib.Path, default=generate.HERE)
    options = parser.parse_args()
    found = differences(options.cuda_root, options.compiler, options.table_dir)
    for line in found:
        print(line)
    if found:
        sys.exit(f"{len(found)} differences between proto/driver and the toolkit in {options.cuda_root}")


if __name__ == "__main__":
    main()
