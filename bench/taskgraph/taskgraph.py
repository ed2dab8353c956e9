#!/usr/bin/env python3
"""Runs bench/task_graphs in rows: natively, under tally-run, and under tally-run with graphs in partitions. One line per row:
the median of the program's own times, and how it compares with the row's native graph. Every run checks its result."""
import argparse
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from ways import Failed, find_root  # noqa: E402  pylint: disable=wrong-import-position

SHAPES = ["chain", "independent", "fork-join", "wavefront", "tree-sum", "butterfly", "random"]
LINE = re.compile(r"^(\S+) (\S+) tasks (\d+) median_ms ([\d.]+) best_ms ([\d.]+) runs (\d+) (.+)$", re.MULTILINE)


def run(root, words, way, embedded):
    """(tasks, median in ms, what was checked). `way`: native, tally, partitions."""
    command = [os.path.join(root, "bench", "task_graphs"), *words]
    environment = dict(os.environ)
    if way != "native":
        command = [os.path.join(root, "bin", "tally-run"), *(["--embedded"] if embedded else []), *command]
    if way == "partitions":
        # Also where nobody with priority is there: what being stoppable costs.
        environment["TALLY_FORCE_GRAPHS"] = "partitions"
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    found = LINE.search(done.stdout)
    if done.returncode != 0 or found is None:
        raise Failed(f"{way}: {' '.join(words)}: status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return int(found[3]), float(found[4]), found[7]


def rows(options):
    """Each: its words but the mode."""
    if options.smoke:
        for shape in SHAPES:
            yield ["--problem", shape, "--tasks", "120", "--repetitions", "2"]
        for problem in ("lu", "cholesky"):
            yield ["--problem", problem, "--n", "48", "--tiles", "6", "--repetitions", "1", "--plain"]
        return
    if options.rows == "empty":
        for power in (8, 10, 12, 14):
            yield ["--problem", "random", "--tasks", str(1 << power), "--repetitions", "50"]
    elif options.rows == "shapes":
        for shape in SHAPES:
            for rounds in (0, 1000, 10000, 100000):
                yield ["--problem", shape, "--tasks", "120", "--rounds", str(rounds), "--blocks", "16", "--repetitions", "50"]
    else:
        for tiles in (12, 6, 8, 16):  # the one that is compared with others first: a run may be cut short
            for size in (12000, 24000, 48000):
                yield ["--problem", options.rows, "--n", str(size), "--tiles", str(tiles), "--repetitions", "7"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", choices=("empty", "shapes", "lu", "cholesky"), default="empty", help="default: %(default)s")
    parser.add_argument("--smoke", action="store_true", help="small, on the software GPU, without native runs: results only")
    parser.add_argument("--embedded", action="store_true", help="a tallyd for each run; else one has to run already")
    options = parser.parse_args()
    ways = ["tally", "partitions"] if options.smoke else ["native", "tally", "partitions"]
    root = find_root()
    failures = 0
    for words in rows(options):
        is_matrix = words[1] in ("lu", "cholesky")
        modes = ["streams", "graph"] + (["cusolver"] if is_matrix and not options.smoke else [])
        base = None
        for mode in modes[::-1]:
            for way in ways:
                if way == "partitions" and mode != "graph":
                    continue
                try:
                    tasks, median_ms, checked = run(root, [*words, "--mode", mode], way, options.embedded or options.smoke)
                except Failed as failed:
                    print(f"{' '.join(words)}: {way} {mode}: FAILED", flush=True)
                    print(f"taskgraph.py: {failed}", file=sys.stderr, flush=True)
                    failures += 1
                    continue
                if mode == "graph" and base is None:
                    base = median_ms
                ratio = f"{base / median_ms:.3f}" if base and median_ms else "-"
                print(f"{' '.join(words)}: {way} {mode}: {tasks} tasks, {median_ms:.4f} ms, {ratio} of the graph, {checked}",
                      flush=True)
    sys.exit(f"taskgraph.py: {failures} runs failed" if failures else 0)


if __name__ == "__main__":
    main()
