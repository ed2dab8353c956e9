#!/usr/bin/env python3
"""What arrival hints give an HTTP service beside a training, and what they cost that (README.md).

    hints.py [--seconds S] [--mean-ms M] [--services epoll,http] [--modes ...] [--smoke] [--output FILE]

Modes, each with a fresh process of the service:
    native     natively, alone
    alone      under Tally, alone
    slices     under Tally, beside the training: time slices
    hints      the same with --hints=on
    expect     the same, the program says it itself (tally_expect_work)
Prints a line of JSON for each cell as it comes, then a table.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
# pylint: disable=wrong-import-position
import machine
import ways
from child import Child

MODES = ("native", "alone", "slices", "hints", "expect")
BESIDE = ("slices", "hints", "expect")
WARM_S = 1.5
FIGURES = ("hints_announced", "hints_hit", "hints_false", "hints_late", "hints_refused", "hints_declared")


def service_words(root, service, mode):
    words = {"epoll": [os.path.join(root, "bench", "epoll_service")],
             "http": [sys.executable, os.path.join(HERE, "http_service.py")]}[service]
    return words + (["--expect"] if mode == "expect" else [])


def run_client(port, seconds, mean_ms, seed):
    done = subprocess.run([sys.executable, os.path.join(HERE, "client.py"), port, str(seconds), str(mean_ms), str(seed)],
                          stdout=subprocess.PIPE, text=True, timeout=seconds + 60, check=True)
    return json.loads(done.stdout)


def figures_of(daemon, pid):
    for row in daemon.ctl("ps"):
        if row["pid"] == pid:
            return {name: row[name] for name in FIGURES if name in row}
    return {}


class Bench:
    def __init__(self, options, daemon, native, load):
        self.options = options
        self.daemon = daemon
        self.native = native
        self.load = load
        self.solo = 0.0  # steps of the training in a second, alone

    def rate(self, seconds):
        began, before = time.monotonic(), self.steps()
        time.sleep(seconds)
        return (self.steps() - before) / (time.monotonic() - began)

    def steps(self):
        self.load.say("count")
        return self.load.answer(30)["steps"]

    def tell(self, word):
        self.load.say(word)
        self.load.answer(30)

    def measure_solo(self):
        self.tell("go")
        time.sleep(0.5)
        self.solo = self.rate(self.options.seconds / 2)
        self.tell("rest")

    def cell(self, service, mode):
        words = service_words(self.options.root, service, mode)
        way = self.native if mode == "native" else self.daemon
        command = way.command((["--hints=on"] if mode == "hints" else []) + words, "high")
        run = Child(command, f"{service} {mode}")
        try:
            port = run.line("ready", 120).split()[1]
            if mode in BESIDE:
                self.tell("go")
            run_client(port, WARM_S, self.options.mean_ms, 7)
            began, before = time.monotonic(), self.steps()
            results = run_client(port, self.options.seconds, self.options.mean_ms, 1)
            rate = (self.steps() - before) / (time.monotonic() - began)
            counts = figures_of(self.daemon, run.process.pid)
            if mode in BESIDE:
                self.tell("rest")
        finally:
            run.end(5)
        cell = {"service": service, "mode": mode, "requests": len(results["own"]), "unanswered": results["unanswered"],
                "training": round(rate / self.solo, 3) if mode in BESIDE and self.solo else None, **counts}
        for of in ("gpu", "own", "client", "lead"):
            cell[of] = {"p50": machine.quantile(results[of], 0.5), "p99": machine.quantile(results[of], 0.99)}
        return cell


def table(cells):
    lines = [f"{'service':8} {'mode':8} {'gpu p50/p99':>17} {'own p50/p99':>17} {'client p50/p99':>17} {'lead p50/p99':>17} "
             f"{'training':>8}  announced hit false late refused"]
    for cell in cells:
        times = " ".join(f"{cell[of]['p50']:8.0f}/{cell[of]['p99']:8.0f}" for of in ("gpu", "own", "client", "lead"))
        counts = " ".join(str(cell.get(f"hints_{name}", "-")) for name in ("announced", "hit", "false", "late", "refused"))
        training = "-" if cell["training"] is None else f"{cell['training']:.3f}"
        lines.append(f"{cell['service']:8} {cell['mode']:8} {times} {training:>8}  {counts}")
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--mean-ms", type=float, default=8, help="between requests")
    parser.add_argument("--services", default="epoll,http")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--smoke", action="store_true", help="on the software GPU, briefly: that it runs")
    parser.add_argument("--output", help="where the lines of JSON go, too")
    options = parser.parse_args()
    options.root = ways.find_root()
    if options.smoke:
        options.seconds, options.mean_ms = 1.0, 20
    return options


def main():
    options = parse()
    cells = []
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(ways.daemon(options.root, "sim" if options.smoke else "cuda"))
        native = daemon if options.smoke else ways.Native()
        load = Child(daemon.command([sys.executable, os.path.join(HERE, "load.py")], "best-effort"), "load")
        stack.callback(load.end)
        load.line("ready", 120)
        bench = Bench(options, daemon, native, load)
        bench.measure_solo()
        for service in options.services.split(","):
            for mode in options.modes.split(","):
                try:
                    cell = bench.cell(service, mode)
                except ways.Failed as failure:
                    print(f"{service} {mode}: {failure}", flush=True)
                    continue
                cells.append(cell)
                line = json.dumps(cell)
                print(line, flush=True)
                if options.output:
                    with open(options.output, "a", encoding="utf-8") as out:
                        out.write(line + "\n")
    print(table(cells), flush=True)
    wanted = len(options.services.split(",")) * len(options.modes.split(","))
    return 0 if len(cells) == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
