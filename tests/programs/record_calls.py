#!/usr/bin/env python3
"""Which driver functions do the tests call? Runs tests with the recording build of libcuda.so.1 and asks it.

usage: record_calls.py [--update] BUILD_DIR NAMES...

Every function of proto/driver/driver_api.tsv that is not refused must return CUDA_SUCCESS at least once while these
tests run: programs of tests/programs under tally-run, and the shim's unit test. A function that cannot succeed on the
software GPU is listed in error_paths_only.txt with the reason: it must be called, and fail.

Without an option: a check. Tests that called_functions.tsv says are needed run first, the others only if functions are
still missing. With --update: all tests run, and called_functions.tsv is written (docs/driver-api-support.md is made of
it: run proto/driver/support_page.py then).
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "proto/driver"))
import generate  # noqa: E402
import support_page  # noqa: E402

ERRORS_ONLY = HERE / "error_paths_only.txt"
UNIT_TEST = "client_shim_calls_test"
SUCCEEDED, FAILED = 1, 2  # bits of a note: tests/client-shim/recording/record_calls.h
TIMEOUT_S = 110
NUM_AT_ONCE = 2

HEAD = """\
# Which driver functions were called while which tests ran on the software GPU. Made by record_calls.py --update.
# function<TAB>tests in which it returned CUDA_SUCCESS<TAB>tests in which it only failed
"""


def read_errors_only():
    result = {}
    for line in ERRORS_ONLY.read_text().splitlines():
        if line and not line.startswith("#"):
            symbol, reason = line.split(": ", 1)
            result[symbol] = reason
    return result


class Recorder:
    def __init__(self, build):
        self.build = build
        self.symbols = [row.symbol for row in generate.read_table()]

    def command(self, name):
        if name == UNIT_TEST:
            return [str(self.build / "tests" / name)]
        return [str(self.build / "bin/tally-run"), "--embedded", str(self.build / "programs" / name)]

    def run(self, name):
        """symbol -> bits, of one test. Whether the test passes is not asked here: other tests do."""
        with tempfile.TemporaryDirectory() as folder:
            notes = pathlib.Path(folder) / "notes"
            environment = dict(os.environ, TALLY_CLIENT_DIR=str(self.build / "tests/recording"),
                               TALLY_RECORD_CALLS=str(notes), TALLY_SIM_DEVICES="2", PROGRAM_NEEDS_DEVICES="2")
            try:
                subprocess.run(self.command(name), env=environment, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired:
                pass
            found = notes.read_bytes() if notes.exists() else bytes(len(self.symbols))
        if len(found) != len(self.symbols):
            sys.exit(f"{name}: notes of {len(found)} functions, the table has {len(self.symbols)}: rebuild")
        return {symbol: bits for symbol, bits in zip(self.symbols, found) if bits}


def is_enough(bits, symbol, errors_only):
    return bits & (FAILED if symbol in errors_only else SUCCEEDED) != 0


def in_order(names, needed):
    """Tests in the order in which each adds most of what is still needed, by the committed record; then the rest."""
    covers = {name: set() for name in names}
    for symbol, (succeeded, failed) in support_page.read_called().items():
        for name in succeeded or failed:
            if name in covers and symbol in needed:
                covers[name].add(symbol)
    order, left = [], set(needed)
    while covers:
        best = max(sorted(covers), key=lambda name: len(covers[name] & left))
        left -= covers.pop(best)
        order.append(best)
    return order


def check(recorder, names, needed, errors_only):
    missing = set(needed)
    order = in_order(names, needed)
    with concurrent.futures.ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        while missing and order:
            batch, order = order[:NUM_AT_ONCE], order[NUM_AT_ONCE:]
            for found in pool.map(recorder.run, batch):
                missing -= {symbol for symbol, bits in found.items() if is_enough(bits, symbol, errors_only)}
    for symbol in sorted(missing):
        print(f"{symbol}: no test calls it" + ("" if symbol in errors_only else " with success"))
    if missing:
        sys.exit(f"{len(missing)} of {len(needed)} functions that are not refused have no test")
    print(f"{len(needed)} functions, each called by a test")


def update(recorder, names, needed):
    succeeded, failed = {}, {}
    with concurrent.futures.ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        for name, found in zip(names, pool.map(recorder.run, names)):
            for symbol, bits in found.items():
                (succeeded if bits & SUCCEEDED else failed).setdefault(symbol, []).append(name)
    text = HEAD
    for symbol in recorder.symbols:
        if symbol in needed and (symbol in succeeded or symbol in failed):
            text += f"{symbol}\t{' '.join(succeeded.get(symbol, []))}\t{' '.join(failed.get(symbol, []))}".rstrip() + "\n"
    support_page.CALLED.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    recorder = Recorder(options.build_dir)
    rows = generate.read_table()
    needed = {row.symbol for row in rows if row.verdict != "refused"}
    errors_only = read_errors_only()
    for symbol in errors_only.keys() - needed:
        sys.exit(f"error_paths_only.txt has {symbol}, which is no served function")
    names = [UNIT_TEST] + sorted(options.names)
    if options.update:
        update(recorder, names, needed)
    else:
        check(recorder, names, needed, errors_only)


if __name__ == "__main__":
    main()
