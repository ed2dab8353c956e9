#!/usr/bin/env python3
"""Runs bench/task_graphs in rows: natively, under tally-run, and under tally-run with graphs in partitions; with --gpus: natively
on one GPU, and spread over several. One line per row: the median of the program's own times, and how it compares with the row's
native graph. Every run checks its result."""
import argparse
import collections
import os
import re
import statistics
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import plan_times  # noqa: E402  pylint: disable=wrong-import-position
import ways  # noqa: E402  pylint: disable=wrong-import-position

# Blocks of 128 threads: eight a multiprocessor, so that a task alone keeps all of an H100 or H200 busy.
FILL_A_GPU = 8 * 132
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
        raise ways.Failed(f"{way}: {' '.join(words)}: status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return int(found[3]), float(found[4]), found[7]


# Launches until it is settled how a graph is launched: as a whole, one that times its tasks, those that are judged.
SETTLED_AFTER = 16


class Watch(threading.Thread):
    """What tallyctl says of a program's graph while it runs: the last that was heard. `has_plan`: with its plan."""

    def __init__(self, tallyd, has_plan):
        super().__init__()
        self.tallyd, self.has_plan = tallyd, has_plan
        self.row, self.plan, self.ended = None, "", threading.Event()

    def run(self):
        while not self.ended.wait(0.3):
            try:
                found = self.tallyd.ctl("graphs")
                self.row = max(found, key=lambda row: row["launches"], default=self.row)
                if self.has_plan and self.row and self.row["launches_spread"]:
                    self.plan = self.tallyd.ctl_text("graph", self.row["id"], "--dot")
            except (ways.Failed, subprocess.SubprocessError):
                continue

    def text(self):
        self.ended.set()
        self.join()
        if self.row is None:
            return "too short to be looked at"
        moved = self.row["moved_bytes"] / max(1, self.row["launches_spread"]) / 1e6
        return (f"{self.row['launches_spread']} of {self.row['launches']} launches on {self.row['gpus']} GPUs, {moved:.1f} MB moved a "
                f"launch, whole {self.row['whole_ns'] / 1e6:.3f} ms, spread {self.row['spread_ns'] / 1e6:.3f} ms"
                + (f", whole now: {self.row['why_whole']}" if self.row["why_whole"] else ""))


def keep_plan(directory, words, plan):
    """Into a file, and what became of it onto the screen."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "-".join(word.lstrip("-") for word in words) + ".dot")
    with open(path, "w", encoding="ascii") as file:
        file.write(plan)
    print("\n".join(["", path, *plan_times.report(plan_times.read(plan.splitlines())), ""]), flush=True)


def run_spread(root, tallyd, words, plans):
    """As run(), and what tallyctl said."""
    watch = Watch(tallyd, plans is not None)
    watch.start()
    command = [os.path.join(root, "bin", "tally-run"), "--quiet", "--socket", tallyd.socket, "--graphs", "spread",
               os.path.join(root, "bench", "task_graphs"), *words, "--warm-ups", str(SETTLED_AFTER)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    heard = watch.text()
    found = LINE.search(done.stdout)
    if done.returncode != 0 or found is None:
        raise ways.Failed(f"spread: {' '.join(words)}: status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    if watch.plan:
        keep_plan(plans, words, watch.plan)
    return int(found[3]), float(found[4]), f"{found[7]}; {heard}"


def devices(options):
    """Environment in which there are so many."""
    if not ways.has_gpu():
        return {"TALLY_SIM_DEVICES": str(options.gpus)}
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(options.gpus))))}


def of_the_machine(root, options):
    """What its GPUs are to one another, natively; without GPUs only whether the program runs."""
    command, env = [os.path.join(root, "bench", "gpu_links")], devices(options)
    if not options.smoke:
        return subprocess.run(command, check=False, env={**os.environ, **env}).returncode == 0
    with ways.daemon(root, "auto", env=env) as tallyd:
        return subprocess.run(tallyd.command([*command, "--bytes", "4096"]), check=False).returncode == 0


def on_several(root, options):
    """Rows with one GPU natively, and with several under tally-run."""
    env = devices(options)
    if options.smoke:
        env.update({"TALLY_FORCE_GRAPHS": "spread", "TALLY_SPREAD_LEAST_BYTES": "1024"})
    failures, gains = 0, collections.defaultdict(list)
    with ways.daemon(root, "auto", env=env) as tallyd:
        for words in rows(options):
            is_matrix = words[1] in ("lu", "cholesky")
            native = [] if options.smoke else [["graph"]] + ([["cusolver"]] if is_matrix else [])
            if native and words[1] == "cholesky":
                native.append(["cusolvermg", "--gpus", str(options.gpus)])
            base = None
            for mode in native:
                try:
                    tasks, median_ms, checked = run(root, [*words, "--mode", *mode], "native", False)
                except ways.Failed as failed:
                    failures += 1
                    show_failure(words, f"native {mode[0]}", failed)
                    continue
                base = base or median_ms
                show(words, f"native {' '.join(mode)}", tasks, median_ms, base, checked)
            for more in [["--annotated"]] if options.rows == "fma" else [[], ["--annotated"]]:
                way = " ".join([f"spread over {options.gpus}", *more])
                try:
                    tasks, median_ms, checked = run_spread(root, tallyd, [*words, "--mode", "graph", *more], options.plans)
                except ways.Failed as failed:
                    failures += 1
                    show_failure(words, way, failed)
                    continue
                show(words, way, tasks, median_ms, base, checked)
                if base and options.rows == "fma":
                    gains[words[words.index("--rounds") + 1]].append(base / median_ms)
        for rounds, found in gains.items():
            print(f"tasks of up to {rounds} multiply-adds, mean of {len(found)} shapes: {statistics.mean(found):.3f} of the graph", flush=True)
        # Why a graph stayed on one GPU, and what was planned.
        print("\n".join(line for line in tallyd.log_text().splitlines() if "graph" in line), flush=True)
    return failures


def show(words, way, tasks, median_ms, base, checked):
    ratio = f"{base / median_ms:.3f}" if base and median_ms else "-"
    print(f"{' '.join(words)}: {way}: {tasks} tasks, {median_ms:.4f} ms, {ratio} of the graph, {checked}", flush=True)


def show_failure(words, way, failed):
    """What comes behind it is measured all the same."""
    print(f"{' '.join(words)}: {way}: FAILED", flush=True)
    print(f"taskgraph.py: {failed}", file=sys.stderr, flush=True)


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
    elif options.rows == "fma":
        for rounds in (1000, 10000, 100000):
            for shape in SHAPES:
                yield ["--problem", shape, "--tasks", "120", "--rounds", str(rounds), "--uneven", "--blocks", str(FILL_A_GPU), "--repetitions", "10"]
    else:
        for tiles in options.tiles.split(","):  # the first is what others are compared with: a run may be cut short
            for size in options.sizes.split(","):
                yield ["--problem", options.rows, "--n", size, "--tiles", tiles, "--repetitions", "7"]


def on_one(root, options):
    """Rows natively, under tally-run, and in partitions."""
    chosen = ["tally", "partitions"] if options.smoke else ["native", "tally", "partitions"]
    failures = 0
    for words in rows(options):
        is_matrix = words[1] in ("lu", "cholesky")
        modes = ["streams", "graph"] + (["cusolver"] if is_matrix and not options.smoke else [])
        base = None
        for mode in modes[::-1]:
            for way in chosen:
                if way == "partitions" and mode != "graph":
                    continue
                try:
                    tasks, median_ms, checked = run(root, [*words, "--mode", mode], way, options.embedded or options.smoke)
                except ways.Failed as failed:
                    failures += 1
                    show_failure(words, f"{way} {mode}", failed)
                    continue
                if mode == "graph" and base is None:
                    base = median_ms
                show(words, f"{way} {mode}", tasks, median_ms, base, checked)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", choices=("empty", "shapes", "fma", "lu", "cholesky"), default="empty", help="default: %(default)s")
    parser.add_argument("--smoke", action="store_true", help="small, on the software GPU, without native runs: results only")
    parser.add_argument("--embedded", action="store_true", help="a tallyd for each run; else one has to run already")
    parser.add_argument("--gpus", type=int, default=1, help="spread over so many, by a tallyd of its own (default: %(default)s)")
    parser.add_argument("--machine", action="store_true", help="with --gpus, instead of rows: what these GPUs are to one another")
    parser.add_argument("--plans", metavar="DIRECTORY", help="with --gpus: keep the plans there, and say where their time went")
    parser.add_argument("--sizes", default="12000,24000,48000", help="of matrices (default: %(default)s)")
    parser.add_argument("--tiles", default="12,6,8,16", help="of a row of these (default: %(default)s)")
    options = parser.parse_args()
    root = ways.find_root()
    if options.machine:
        return [] if of_the_machine(root, options) else ["gpu_links failed"]
    failures = on_several(root, options) if options.gpus > 1 else on_one(root, options)
    return [f"{failures} runs failed"] if failures else []


if __name__ == "__main__":
    ways.run_bench(main)
