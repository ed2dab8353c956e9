"""Runs of a best-effort program, alone and beside a program with requests at random moments."""
import dataclasses
import json
import os
import subprocess
import sys
import time

from child import Child
import page
from machine import quantile
from ways import Failed

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclasses.dataclass
class Program:
    """A best-effort program: its words up to its options."""
    name: str
    words: list


# What the kernels of python_kernels.py need.
PYTHON_KERNELS = {"triton_rows": {"torch", "triton"}, "triton_elementwise": {"torch", "triton"}, "nvrtc_stencil": {"cupy"}}


def programs(root, names, packages, divide):
    """`packages`: the Python packages that are there."""
    native = os.path.join(root, "bench", "best_effort_kernels")
    listed = subprocess.run([native, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    found = [Program(name, [native, name, "--divide", str(divide)]) for name in listed]
    script = os.path.join(HERE, "python_kernels.py")
    found += [Program(name, [sys.executable, script, name]) for name, needed in PYTHON_KERNELS.items() if needed <= packages]
    return [program for program in found if not names or program.name in names]


@dataclasses.dataclass
class Alone:
    us: float  # median per launch
    digest: str


def alone(way, program, launches, settle_s, timeout_s=120):
    """The program with the GPU to itself."""
    child = Child(way.command([*program.words, "--launches", str(launches), "--settle", str(settle_s)]), program.name)
    try:
        result = json.loads(child.line("{", timeout_s))
        return Alone(quantile(result["us"], 0.5), result["digest"])
    finally:
        child.end()


class Requests:
    """The program with requests, under a way; it stays alive between measurements."""

    def __init__(self, way, root, mean_us):
        words = [os.path.join(root, "bench", "arrivals"), "--serve", "--mean-us", str(mean_us)]
        self.child = Child(way.command(words, "high"), "arrivals")
        self.child.line("ready", 120)

    def measure(self, seconds):
        self.child.say(str(seconds))
        return json.loads(self.child.line("{", seconds + 60))["us"]

    def close(self):
        self.child.end()


@dataclasses.dataclass
class Beside:
    latencies: list  # microseconds of requests
    us: float        # median per launch of the best-effort program
    digest: str
    report: dict     # `tallyctl kernels` about its kernel; {} natively
    figures: dict    # `tallyctl ps` about its session, when the requests were over; {} natively


def beside(way, requests, program, launches, seconds, settle_s, timeout_s=120):
    """Requests for `seconds` while the program is in its launches, which must take longer."""
    kernels = getattr(way, "ctl", lambda _: [])
    before = kernels("kernels")
    child = Child(way.command([*program.words, "--launches", str(launches), "--settle", str(settle_s)], "best-effort"), program.name)
    try:
        child.line("begin", timeout_s)
        latencies = requests.measure(seconds)
        if not child.is_running():
            raise Failed("the best-effort program ended before the requests did: give it more launches")
        figures = next((row for row in kernels("ps") if row["class"] == "best-effort"), {})
        result = json.loads(child.line("{", timeout_s))
        report = page.most_launched(before, kernels("kernels"))
        return Beside(latencies, quantile(result["us"], 0.5), result["digest"], report, figures)
    finally:
        child.end()
