"""Runs of a best-effort program, alone and beside a program with requests at random moments."""
import contextlib
import dataclasses
import json
import os
import selectors
import subprocess
import sys
import time

from machine import quantile
from ways import Failed

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclasses.dataclass
class Program:
    """A best-effort program: its words up to its options."""
    name: str
    words: list


def programs(root, names, with_python, divide):
    native = os.path.join(root, "bench", "best_effort_kernels")
    listed = subprocess.run([native, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    found = [Program(name, [native, name, "--divide", str(divide)]) for name in listed]
    if with_python:
        script = os.path.join(HERE, "python_kernels.py")
        found += [Program(name, [sys.executable, script, name])
                  for name in ("triton_rows", "triton_elementwise", "nvrtc_stencil")]
    return [program for program in found if not names or program.name in names]


class Child:
    """A process that answers with lines."""

    def __init__(self, words):
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.name = os.path.basename(words[-1])

    def line(self, begins_with, timeout_s):
        deadline = time.monotonic() + timeout_s
        while True:
            with selectors.DefaultSelector() as selector:
                selector.register(self.process.stdout, selectors.EVENT_READ)
                line = self.process.stdout.readline() if selector.select(max(0, deadline - time.monotonic())) else None
            if line is None:
                raise Failed(f"no '{begins_with}' within {timeout_s:.0f} s")
            if not line:
                said = self.process.stderr.read().strip().splitlines()[-3:]
                raise Failed(f"ended with status {self.process.wait(30)}: " + " | ".join(said)[-500:])
            if line.startswith(begins_with):
                return line

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def is_running(self):
        return self.process.poll() is None

    def end(self):
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                if stream is self.process.stdin:
                    stream.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


@dataclasses.dataclass
class Alone:
    us: float  # median per launch
    digest: str


def alone(way, program, launches, settle_s, timeout_s=120):
    """The program with the GPU to itself."""
    child = Child(way.command([*program.words, "--launches", str(launches), "--settle", str(settle_s)]))
    try:
        result = json.loads(child.line("{", timeout_s))
        return Alone(quantile(result["us"], 0.5), result["digest"])
    finally:
        child.end()


class Requests:
    """The program with requests, under a way; it stays alive between measurements."""

    def __init__(self, way, root):
        self.child = Child(way.command([os.path.join(root, "bench", "arrivals"), "--serve"], "high"))
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


def beside(way, requests, program, launches, seconds, settle_s, timeout_s=120):
    """Requests for `seconds` while the program is in its launches, all of them if that takes less."""
    child = Child(way.command([*program.words, "--launches", str(launches), "--settle", str(settle_s)], "best-effort"))
    try:
        child.line("begin", timeout_s)
        latencies = requests.measure(seconds)
        if not child.is_running():
            raise Failed("the best-effort program ended before the requests did: give it more launches")
        result = json.loads(child.line("{", timeout_s))
        return Beside(latencies, quantile(result["us"], 0.5), result["digest"])
    finally:
        child.end()
