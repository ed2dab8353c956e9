#!/usr/bin/env python3
"""Data-parallel and sharded trainings by torchrun, a rank on every GPU: natively, under tally-run, natively again.

    python3 bench/ranks/ranks.py --gpus 2 --output ranks.md --json ranks.json

Says milliseconds a step (median, 10 to 90 %), under Tally over native, and whether the losses of all ranks are the
native ones, bit for bit. Then one rank is killed in mid-training: do the others end, and with what? On a machine with
several GPUs, PyTorch, torchvision and transformers; downloads nothing.
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
# pylint: disable=wrong-import-position
import machine
import output
import ways
# pylint: enable=wrong-import-position

TRAININGS = ("resnet50:ddp", "gpt2:ddp", "resnet50:fsdp", "gpt2:fsdp")
KILL_STEP = 8


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2, help="ranks (default: %(default)s)")
    parser.add_argument("--trainings", default=",".join(TRAININGS), help="NETWORK:WAY,... (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=30, help="that are measured in a run (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=90, help="seconds for one run (default: %(default)s)")
    parser.add_argument("--json", dest="json_path", help="all times")
    parser.add_argument("--output", help="Markdown file; it also goes to stdout")
    return parser.parse_args()


def start(place, options, training, env=None, role=""):
    """torchrun, whose stdout and stderr are one pipe. `role`: of modes.Place."""
    network, way = training.split(":")
    command = place.command([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.gpus),
                             os.path.join(HERE, "rank.py"), network, way, str(options.steps)], role)
    environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "4", **(env or {})}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=environment, start_new_session=True)


def kill(process):
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def end(process):
    kill(process)
    process.wait()
    process.stdout.close()


def finish(process, seconds):
    """(exit status, what it printed); one that outlives its time is killed: (None, ...)."""
    try:
        text, _ = process.communicate(timeout=seconds)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        kill(process)
        return None, process.communicate()[0]


def answer_in(text):
    """What rank 0 said, or None."""
    return next((json.loads(line) for line in text.splitlines() if line.startswith('{"times_ms"')), None)


def reason(status):
    """Why there is no answer."""
    return "no end in time" if status is None else f"exit status {status}"


def torchrun(place, options, training, env=None):
    process = start(place, options, training, env)
    try:
        return finish(process, options.timeout)
    finally:
        end(process)


def measure(place, options, training):
    status, text = torchrun(place, options, training)
    said = answer_in(text) if status == 0 else None
    return said or {"failed": reason(status), "log": text[-4000:]}


def killed(place, options):
    """What becomes of the other ranks when the last one is killed."""
    began = time.monotonic()
    status, text = torchrun(place, options, TRAININGS[0], {"RANKS_KILL": f"{options.gpus - 1}:{KILL_STEP}"})
    lines = [line.strip() for line in text.splitlines() if "NCCL" in line or "Error" in line or "SIGKILL" in line or "Signal" in line]
    return {"status": status, "seconds": round(time.monotonic() - began, 1), "said": lines[:8], "log": text[-4000:]}


def median_and_range(times):
    return "{:.2f} ({:.2f} to {:.2f})".format(*(machine.quantile(times, q) for q in (0.5, 0.1, 0.9)))


def cell(run):
    if "failed" in run:
        return run["failed"]
    return median_and_range(run["times_ms"])


def differs(runs):
    """True if losses under tally-run are none of those of the native runs, which are equal."""
    digests = [run.get("digest") for run in runs]
    return None not in digests and digests[0] == digests[2] != digests[1]


def page(results):
    text = [f"# {results['gpus']} ranks that train together", ""] + [f"* {key}: {value}" for key, value in results["machine"].items()]
    text += ["", "Milliseconds a step, median (10 to 90 %). Native: the faster median of a run before and one after.", "",
             "| training | native, before | tally-run | native, after | over native | losses |", "|---|---|---|---|---:|---|"]
    for training, runs in results["runs"].items():
        before, tally, after = runs
        ratio, losses = "-", "-"
        if not any("failed" in run for run in runs):
            native = min(machine.quantile(run["times_ms"], 0.5) for run in (before, after))
            ratio = f"{machine.quantile(tally['times_ms'], 0.5) / native:.3f}"
            losses = ("DIFFER" if differs(runs) else
                      "the same bits" if tally["digest"] in (before["digest"], after["digest"]) else "native runs differ, too")
        text.append(f"| {training} | {cell(before)} | {cell(tally)} | {cell(after)} | {ratio} | {losses} |")
    text += ["", "One rank killed by SIGKILL before step " + str(KILL_STEP) + ":", ""]
    for name, told in results["killed"].items():
        said = told["said"][0][:200] if told["said"] else "nothing"
        ended = "did not end in time" if told["status"] is None else f"torchrun ended with {told['status']}"
        text.append(f"* {name}: {ended}, {told['seconds']} s after its start; said: {said}")
    return "\n".join(text) + "\n"


def main():
    options = read_options()
    root = ways.find_root()
    results = {"machine": machine.describe(root, ("torch", "torchvision", "transformers")), "gpus": options.gpus, "runs": {}, "killed": {}}
    native, tally = ways.Native(), ways.Daemon(root, "cuda")
    try:
        for training in options.trainings.split(","):
            results["runs"][training] = []
            for place in (native, tally, native):
                print(f"{training}, {place.name}", file=sys.stderr, flush=True)
                results["runs"][training].append(measure(place, options, training))
            output.write(page({**results, "runs": {name: runs for name, runs in results["runs"].items() if len(runs) == 3}}), results, options)
        for place in (native, tally):
            results["killed"][place.name] = killed(place, options)
        results["tallyd"] = tally.log()[-4000:]
    finally:
        tally.stop()
    output.write(page(results), results, options)
    print(page(results))
    failed = [f"{training}: {run['failed']}" for training, runs in results["runs"].items() for run in runs if "failed" in run]
    failed += [f"{training}: losses differ" for training, runs in results["runs"].items() if differs(runs)]
    failed += [f"{name}: ranks without their partner do not end" for name, told in results["killed"].items() if told["status"] is None]
    return failed


if __name__ == "__main__":
    ways.run_bench(main)
