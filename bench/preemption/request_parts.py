#!/usr/bin/env python3
"""What a request pays beside best-effort work, by what it is made of: kernel, copies, event records. Where does the GPU go
away from a service in the middle of its request?

    python3 bench/preemption/request_parts.py --output parts.md --json parts.json

Each request: some copies to the GPU from pinned memory, each with an event record behind it or not, a kernel of 50 us, a
copy back or not, and a wait. Requests come at random moments, 0.5 to 1.5 ms apart; beside them, in a program of its own,
kernels of 2 ms without a pause. Alone and beside, natively with the driver's time slices set from outside
(`tally_time_slices.so`), and under tally-run. Needs a GPU; --smoke runs on the software GPU to see that all runs.
"""
import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "integration", "support"))
# pylint: disable=wrong-import-position
import machine
import output
import ways
from cuda_driver import Cuda
# pylint: enable=wrong-import-position

# Spins until so many ticks of the multiprocessor's clock are over; all its blocks do.
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 ticks) {
  .reg .b64 %d<5>;
  .reg .pred %p1;
  ld.param.u64 %d1, [ticks];
  mov.u64 %d2, %clock64;
again:
  mov.u64 %d3, %clock64;
  sub.s64 %d4, %d3, %d2;
  setp.lt.s64 %p1, %d4, %d1;
  @%p1 bra again;
  ret;
}
\0"""
TICKS_PER_US = 1980
REQUEST_US, BESIDE_US = 50, 2000
SIZES = (8, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20)

# Name: copies (bytes each), an event behind each copy, a copy back.
SHAPES = {"kernel": ((), False, False), "kernel, copy back": ((), False, True)}
for _sizes in (*((size,) for size in SIZES), (4096, 4096), (65536, 65536), *((8, size) for size in SIZES[1:]), (65536, 8),
               (65536, 8, 65536), (8, 65536, 8, 65536)):
    SHAPES["copies of " + ", ".join(map(str, _sizes))] = (_sizes, False, False)
SHAPES["copies of 8, 65536, events"] = ((8, 65536), True, False)
SHAPES["copies of 8, 65536, copy back"] = ((8, 65536), False, True)


class Program:
    def __init__(self):
        self.cuda = Cuda()
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.cuda.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.cuda.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"spin")
        self.stream = ctypes.c_void_p()
        self.cuda.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def spin(self, microseconds, blocks):
        ticks = ctypes.c_uint64(int(microseconds * TICKS_PER_US))
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(ticks), ctypes.c_void_p))
        self.cuda.call("cuLaunchKernel", self.kernel, blocks, 1, 1, 128, 1, 1, 0, self.stream, parameters, None)

    def wait(self):
        self.cuda.call("cuStreamSynchronize", self.stream)


def be_service(requests, is_smoke):
    program = Program()
    cuda = program.cuda
    devices = [cuda.allocate(max(SIZES)) for _ in range(4)]
    hosts = [cuda.allocate_host(max(SIZES)) for _ in range(4)]
    events = [ctypes.c_void_p() for _ in range(4)]
    for event in events:
        cuda.call("cuEventCreate", ctypes.byref(event), 2)
    chance = random.Random(5)
    found = {name: [] for name in SHAPES}
    # By turns, so that all shapes see the same weather.
    for index in range(-10, requests):
        for name, (copies, has_events, comes_back) in SHAPES.items():
            time.sleep(0 if is_smoke else chance.uniform(0.5e-3, 1.5e-3))
            began = time.perf_counter()
            for number, size in enumerate(copies):
                cuda.call("cuMemcpyHtoDAsync_v2", devices[number], hosts[number], ctypes.c_size_t(size), program.stream)
                if has_events:
                    cuda.call("cuEventRecord", events[number], program.stream)
            program.spin(1 if is_smoke else REQUEST_US, 1)
            if comes_back:
                cuda.call("cuMemcpyDtoHAsync_v2", hosts[0], devices[0], ctypes.c_size_t(4096), program.stream)
            program.wait()
            if index >= 0:
                found[name].append((time.perf_counter() - began) * 1e6)
    print(json.dumps(found), flush=True)


def be_beside(is_smoke):
    program = Program()
    print("ready", flush=True)
    while True:
        for _ in range(4):
            program.spin(1 if is_smoke else BESIDE_US, 2 if is_smoke else 1056)
        program.wait()


def start(command, environment):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **environment})


def measure(commands, environments, options):
    """Microseconds of each request by shape: alone, and beside."""
    found = {}
    for name in ("alone", "beside"):
        words = [sys.executable, os.path.abspath(__file__), *(["--smoke"] if options.smoke else [])]
        beside = None
        if name == "beside":
            beside = start(commands("best-effort", [*words, "--role", "beside"]), environments("best-effort"))
            if beside.stdout.readline().strip() != "ready":
                raise ways.Failed("the program beside: " + beside.stderr.read()[-1000:])
        try:
            service = start(commands("high", [*words, "--role", "service", "--requests", str(options.requests)]), environments("high"))
            said, errors = service.communicate(timeout=options.timeout)
            if service.returncode != 0:
                raise ways.Failed(f"{name}: {errors[-1000:]}")
            found[name] = json.loads(said.splitlines()[-1])
        finally:
            if beside is not None:
                beside.kill()
                beside.wait()
    return found


def page(results):
    text = ["# What a request pays, by its parts", ""] + [f"* {key}: {value}" for key, value in results["machine"].items()]
    text += ["", "Microseconds from the first call until the wait returns, median (99 %); beside: kernels of 2 ms in another program.", "",
             "| request | " + " | ".join(f"{way}, alone | {way}, beside | more" for way in results["us"]) + " |",
             "|---|" + "---|---|---:|" * len(results["us"])]
    for name in SHAPES:
        cells = []
        for found in results["us"].values():
            (alone, alone99), (beside, beside99) = (tuple(machine.quantile(found[key][name], q) for q in (0.5, 0.99))
                                                    for key in ("alone", "beside"))
            cells.append(f"{alone:.0f} ({alone99:.0f}) | {beside:.0f} ({beside99:.0f}) | {beside - alone:+.0f}")
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100, help="of each shape (default: %(default)s)")
    parser.add_argument("--ways", default="native,tally-run", help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a service's run (default: %(default)s)")
    parser.add_argument("--json", dest="json_path", help="all times")
    parser.add_argument("--output", help="Markdown file; it also goes to stdout")
    parser.add_argument("--smoke", action="store_true", help="software GPU, three requests, no numbers")
    parser.add_argument("--role", choices=("service", "beside"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "service":
        return be_service(options.requests, options.smoke)
    if options.role == "beside":
        return be_beside(options.smoke)
    options.requests = 3 if options.smoke else options.requests
    root = ways.find_root()
    results = {"machine": machine.describe(root), "us": {}}
    chosen = options.ways.split(",")
    if "native" in chosen and not options.smoke:
        preload = os.path.join(root, "bench", "tally_time_slices.so")
        slices = {"high": "1000000", "best-effort": "1"}
        results["us"]["native"] = measure(lambda _, words: words,
                                          lambda role: {"LD_PRELOAD": preload, "TALLY_TIME_SLICE_US": slices[role]}, options)
    if "tally-run" in chosen:
        with ways.daemon(root, "sim" if options.smoke else "cuda") as tally:
            results["us"]["tally-run"] = measure(lambda role, words: tally.command(words, role), lambda _: {}, options)
    output.write(page(results), results, options)
    print(page(results))


if __name__ == "__main__":
    ways.run_bench(main)
