#!/usr/bin/env python3
"""Does the bench run? As ctest runs it: --smoke, cut short by SIGTERM after its first cell, and gone on with."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = "time-slicing,tally,tally+transforms@50,tally+gates"


def cells(path):
    try:
        with open(path, encoding="utf-8") as text:
            return [record["key"] for record in json.load(text)["cells"]]
    except FileNotFoundError:
        return []


def is_stopped_beside_a_service(path):
    """Is the pipeline's kernel there with a gate, and how soon it was stopped?"""
    subprocess.run([sys.executable, os.path.join(HERE, "colocation.py"), "--smoke", "--json", path, "--pairs", "stand-in:pipeline-2x64-short",
                    "--modes", "tally:look-ahead+gates+shared", "--repetitions", "1", "--seconds", "2", "--minutes", "2"],
                   stdout=subprocess.DEVNULL, check=True, timeout=100)
    with open(path, encoding="utf-8") as text:
        kernels = [row for tallyd in json.load(text)["tallyds"].values() for row in tallyd["kernels"]]
    return any(row["form"].startswith("gated") and row["is_turnaround_measured"] for row in kernels)


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "colocation.json")
        words = [sys.executable, os.path.join(HERE, "colocation.py"), "--smoke", "--json", path, "--modes", MODES, "--loads", "10,30",
                 "--best-effort", "1,2", "--sweep-modes", "time-slicing,tally", "--idle-services", "--repetitions", "1", "--seconds", "0.3", "--minutes", "3", "--output", path + ".md",
                 "--csv", path + ".csv"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as first:
            while first.poll() is None and not cells(path):
                time.sleep(0.05)
            first.send_signal(signal.SIGTERM)
            status = first.wait(60)
        begun = cells(path)
        if status == 0 or not begun or not os.path.exists(path + ".md"):
            sys.exit(f"cut short: exit status {status}, {len(begun)} cells")
        subprocess.run(words, check=True, timeout=200)
        done = cells(path)
        with open(path + ".md", encoding="utf-8") as text:
            if "## From a request to its first kernel" not in text.read():
                sys.exit("the page does not say when first kernels ran")
        if done[:len(begun)] != begun or len(done) <= len(begun) or len(set(done)) != len(done):
            sys.exit(f"did not go on: {begun}, then {done}")
        # Whether a request comes in the middle of a launch is chance.
        if not any(is_stopped_beside_a_service(os.path.join(directory, f"pipeline-{i}.json")) for i in range(3)):
            sys.exit("the pipeline was never stopped")


if __name__ == "__main__":
    main()
