#!/usr/bin/env python3
"""Measurements that wait for a machine with a GPU, each with a time limit of its own, several in one call.

    measure.py --list
    measure.py --output FOLDER PART[:SECONDS] ...

From a bundle (tools/bundle). A part writes its pages and raw data into FOLDER/PART/ and what it printed into
FOLDER/PART.log; a part that outlives its limit is ended, its processes too, and what it has written stays. At the end
FOLDER.tar.gz holds everything, for machines from which few files come back. Exit status 1 if a part failed.
"""
import argparse
import os
import signal
import subprocess
import sys
import tarfile
import time

BUNDLE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
RIGIDSIM = "python3 bench/window/rigidsim.py --output {out}/rigidsim.md --json {out}/rigidsim.json"
SPREAD = "python3 bench/taskgraph/taskgraph.py --plans {out}/plans"
COLOCATION = "python3 bench/colocation/colocation.py --output {out}/colocation.md --json {out}/colocation.json"
COMPANY = "python3 bench/colocation/company.py --output {out}/company.md --json {out}/company.json"
FRAMEWORKS = "python3 tests/frameworks/run.py --output {out}/frameworks.md"


def factorisations(gpus, tiles):
    return " && ".join(f"{SPREAD}/{rows} --gpus {gpus} --rows {rows} --sizes 24000,48000 --tiles {tiles}" for rows in ("cholesky", "lu"))


# Name: (GPUs, seconds that it usually needs, command in the bundle's folder).
PARTS = {
    "programs": (1, 240, "tests/gpu/run_all.sh --output {out}/programs.md --logs {out}/logs --skip sim"),
    "frameworks": (1, 560, FRAMEWORKS + " --jobs 4"),
    "frameworks-window": (1, 560, "TALLY_WINDOW=on " + FRAMEWORKS + " --jobs 4"),
    "forwarding": (1, 560, "python3 bench/forwarding/forwarding.py --output {out}/forwarding.md --json {out}/forwarding.json"),
    "rigidsim": (1, 150, RIGIDSIM + " --seconds 1"),
    "rigidsim-sizes": (1, 120, RIGIDSIM + " --seconds 1 --environments 4096 --modes serial --window-sizes 8,16,32,64"
                       " --shadow-modes serial"),
    "window-nets": (1, 400, "python3 bench/window/nets.py --ahead --output {out}/nets.md --json {out}/nets.json"
                    " --csv {out}/nets.csv"),
    "colocation": (1, 560, COLOCATION + " --minutes 9"),
    "colocation-all": (1, 580, COLOCATION + " --csv {out}/all.csv --pairs all --loads 20 --trace poisson"
                       " --modes alone,driver-slices,tally --repetitions 1 --seconds 2.5 --minutes 9.5"),
    "colocation-holding": (1, 240, COLOCATION + " --minutes 4 --seconds 4 --repetitions 2 --pairs bert-graph:whisper --loads 50,20,80"
                           " --modes alone,time-slicing,tally,tally+unheld"),
    # The Tally paper's Fig. 5a.
    "colocation-loads": (1, 200, COLOCATION + " --minutes 3 --seconds 2.5 --repetitions 2 --trace poisson --pairs bert-graph:pointnet"
                         " --loads 50,10,30,70,90 --modes alone,driver-slices,tally"),
    "colocation-tenants": (1, 240, COLOCATION + " --minutes 3.7 --seconds 2.5 --repetitions 2 --trace poisson --pairs bert-graph:pointnet"
                           " --loads 50 --best-effort 1,2,4,8 --modes alone,mps-priority,tally"),
    "colocation-small": (1, 150, COLOCATION + " --minutes 2.2 --seconds 3 --repetitions 2 --trace poisson --loads 20"
                         " --pairs bert-small-graph:resnet50,bert-small-graph:whisper --modes alone,driver-slices,tally,tally+unheld"),
    "colocation-gates": (1, 240, COLOCATION + " --minutes 4 --seconds 3 --repetitions 2 --idle-services --pairs bert-graph:pointnet-graph"
                         " --modes alone,time-slicing,tally,tally:look-ahead+gates+shared"),
    # What gates cost steps of trainings, kernel by kernel in the JSON file.
    "gates-steps": (1, 205, COLOCATION + " --minutes 3.2 --seconds 2 --repetitions 3 --idle-services only --loads 10"
                    " --pairs bert-small-graph:gpt2-small,bert-small-graph:resnet50,bert-small-graph:gpt2-medium"
                    " --modes alone,tally:look-ahead+shared,tally:look-ahead+gates+shared,tally:look-ahead+gates-always+shared"),
    # The Tally paper's Fig. 6b: one context, nobody schedules; kernels as they are; slices; persistent blocks; these and gates. What torch
    # compiles is on disk when it starts.
    "colocation-ablation": (1, 420, "for training in bert-compiled pointnet-compiled; do"
                            " python3 bench/colocation/training.py $training < /dev/null & done; wait; "
                            + COLOCATION + " --minutes 5.5 --seconds 2.5 --repetitions 1 --trace poisson --loads 20"
                            " --pairs bert-graph:bert-compiled,bert-graph:pointnet-compiled,bert-graph:whisper"
                            " --modes alone,tally:none+shared,tally:look-ahead+shared,tally:look-ahead+slices+shared,tally:look-ahead+workers+shared,"
                            "tally:look-ahead+transforms+shared"),
    "company-services": (1, 280, COMPANY + " --parts services --pair resnet50-graph:whisper --seconds 3 --start-limit 240"),
    "company-levels": (1, 130, COMPANY + " --parts levels --seconds 4"),
    "company-bursts": (1, 240, COMPANY + " --parts bursts --seconds 4 --bursts-seconds 16"),
    "colocation-pipelines": (1, 250, COLOCATION + " --minutes 4 --seconds 4 --repetitions 3 --idle-services"
                             " --pairs bert-graph:pipeline-8x256,bert-graph:pipeline-edges,bert-graph:pipeline-dlrm"
                             " --modes alone,tally:look-ahead+gates+shared,tally:look-ahead+gates-always+shared"),
    # Graphs in partitions, and in partitions of one node: launched node by node.
    "colocation-graphs": (1, 430, " && ".join(
        way + "python3 bench/colocation/colocation.py --output {out}/" + name + ".md --json {out}/" + name + ".json --minutes "
        + minutes + " --seconds 3 --repetitions 2 --pairs bert-graph:resnet50-graph,bert-graph:policy-graph,bert-graph:pointnet-graph --modes " + mode
        for name, way, minutes, mode in (
            ("partitions", "", "4", "alone,tally,tally:look-ahead+gates+shared"),
            ("nodes", "TALLY_GRAPH_PARTITION_NODES=1 ", "2.7", "alone,tally:look-ahead+gates+shared")))),
    "colocation-together": (1, 240, "python3 bench/colocation/together.py --seconds 1.5 --repetitions 2 --modes time-slicing,mps,tally"
                            " --pairs gpt2-medium:pictures,resnet50:pictures,whisper:pictures,bert:pointnet --json {out}/together.json"
                            " --output {out}/together.md"),
    "promises": (1, 480, "python3 bench/colocation/promises.py --output {out}/promises.md --json {out}/promises.json"),
    "promises-again": (1, 110, "python3 bench/colocation/promises.py --parts again --pair bert-small-graph:gpt2-small --load 20"
                       " --seconds 4 --output {out}/promises.md --json {out}/promises.json"),
    "preemption": (1, 300, "python3 bench/preemption/preemption.py --output {out}/preemption.md --json {out}/preemption.json"),
    "request-parts": (1, 60, "python3 bench/preemption/request_parts.py --output {out}/parts.md --json {out}/parts.json"),
    "tenants": (1, 200, "TALLY_DEMO_DRIVER=cuda tools/tenants-demo"),
    "taskgraph-empty": (1, 60, "python3 bench/taskgraph/taskgraph.py --embedded --rows empty"),
    "taskgraph-shapes": (1, 120, "python3 bench/taskgraph/taskgraph.py --embedded --rows shapes"),
    "taskgraph-cholesky": (1, 240, "python3 bench/taskgraph/taskgraph.py --embedded --rows cholesky"),
    "taskgraph-lu": (1, 240, "python3 bench/taskgraph/taskgraph.py --embedded --rows lu"),
    "taskgraph-spread-2": (2, 300, factorisations(2, 12)),
    "taskgraph-spread-4": (4, 300, factorisations(4, 16)),
    "taskgraph-spread-fma": (4, 240, SPREAD + " --gpus 4 --rows fma"),
    "gpu-links": (4, 60, "python3 bench/taskgraph/taskgraph.py --gpus 4 --machine"),
    "ranks": (2, 300, FRAMEWORKS + " --only 'ranks|two_' --jobs 3 --timeout 100"),
    "ranks-steps": (2, 300, "python3 bench/ranks/ranks.py --output {out}/ranks.md --json {out}/ranks.json"),
    "ranks-beside": (2, 250, "python3 bench/ranks/beside.py --output {out}/beside.md --json {out}/beside.json"),
    "spread-beside": (2, 90, "python3 bench/ranks/beside.py --training lu:spread --modes tally --output {out}/spread.md --json {out}/spread.json"),
    "several-gpus": (2, 500, "python3 bench/colocation/several_gpus.py --gpus 2 --repetitions 2 --seconds 4 --output {out}/several_gpus.md"
                     " --json {out}/several_gpus.json"),
    "pipelines": (1, 240, "python3 bench/pipelines/pipelines.py --output {out}/pipelines.md"),
    "pipelines-compiled": (1, 120, "python3 bench/pipelines/pipelines.py --seconds 0.05 --rows 16384 --compiled max-autotune"
                           " --output {out}/pipelines.md"),
    "pipelines-dram": (1, 150, "python3 bench/pipelines/dram.py --output {out}/dram.md"),
    "pipelines-nets": (1, 240, "python3 bench/pipelines/nets.py --output {out}/nets.md"),
    "pipelines-trainings": (1, 240, "python3 bench/pipelines/trainings.py --output {out}/trainings.md"),
    "pipelines-queues": (1, 120, "bench/queues > {out}/queues.md && cat {out}/queues.md"),
}


def end(process):
    """It and all that it started."""
    for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
            return
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def measure(name, seconds, folder):
    """Exit status of the part; None: it was ended."""
    out = os.path.join(folder, name)
    os.makedirs(out, exist_ok=True)
    command = PARTS[name][2].replace("{out}", out)
    with open(f"{out}.log", "wb") as log:
        process = subprocess.Popen(command, shell=True, cwd=BUNDLE, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end(process)


def read_part(word):
    name, _, seconds = word.partition(":")
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"no part '{name}'; there are {', '.join(PARTS)}")
    if seconds and not seconds.isdigit():
        raise argparse.ArgumentTypeError(f"'{seconds}' of '{word}' is no number of seconds")
    return name, int(seconds) if seconds else PARTS[name][1]


def list_parts():
    for name, (gpus, seconds, command) in PARTS.items():
        print(f"{name:18} {gpus} GPU{'s' if gpus > 1 else ' '} {seconds:4} s   {command.replace('{out}/', '')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART[:SECONDS]", type=read_part)
    parser.add_argument("--list", action="store_true", help="the parts, what they need, their commands")
    parser.add_argument("--output", metavar="FOLDER", help="where results go")
    arguments = parser.parse_args()
    if arguments.list:
        return list_parts()
    if not arguments.parts or not arguments.output:
        parser.error("which parts, and --output FOLDER? --list shows the parts")
    folder = os.path.abspath(arguments.output)
    os.makedirs(folder, exist_ok=True)
    failed = False
    for name, seconds in arguments.parts:
        print(f"{name}: at most {seconds} s ... ", end="", flush=True)
        began = time.monotonic()
        status = measure(name, seconds, folder)
        result = "ended at its limit" if status is None else "ok" if status == 0 else f"FAILED ({status})"
        print(f"{result}, {time.monotonic() - began:.0f} s", flush=True)
        failed = failed or status not in (0, None)
    with tarfile.open(f"{folder}.tar.gz", "w:gz") as packed:
        packed.add(folder, os.path.basename(folder))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
