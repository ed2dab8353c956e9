"""The parts of the bench. Each returns rows; a row that could not be measured says why instead of numbers."""
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import time

import processes
import ways
from child import Child
from ways import Failed

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclasses.dataclass
class Row:
    name: str
    unit: str
    native: list = dataclasses.field(default_factory=list)  # samples
    tally: list = dataclasses.field(default_factory=list)
    before: list = dataclasses.field(default_factory=list)  # of the Tally that --before names
    note: str = ""
    program: list = dataclasses.field(default_factory=list)  # what to run again for a profile

    def samples(self, way):
        return {"native": self.native, "tally-run": self.tally, "before": self.before}[way.name]


@dataclasses.dataclass
class Bench:
    root: str
    native: object  # None without a GPU
    tally: ways.Daemon
    driver: str
    priority: str
    smoke: bool
    progress: object  # called with a sentence
    before: object = None  # an earlier Tally's ways.Daemon

    def ways(self):
        return [way for way in (self.native, self.before, self.tally) if way is not None]

    def program(self, name):
        return os.path.join(self.root, "bench", name)


def measure_driver_calls(bench, seconds, name, filters, profile_runs):
    """driver_calls every way by turns, at least twice each, until the time is up."""
    rows = {}
    deadline = time.monotonic() + seconds
    json_path = os.path.join(bench.tally.directory, "driver_calls.json")
    program = [bench.program("driver_calls")] + (["--smoke"] if bench.smoke else ["--divide", "3"])
    rounds = 0
    longest = 0
    while rounds < (1 if bench.smoke else 2) or time.monotonic() + longest < deadline:
        began = time.monotonic()
        for way in bench.ways():
            bench.progress(f"{name}: round {rounds + 1}, {way.name}")
            ways.run(way, program + filters + ["--json", json_path], 300)
            with open(json_path, encoding="utf-8") as text:
                measured = json.load(text)
            for found in measured["rows"]:
                row = rows.setdefault(found["name"], Row(found["name"], found["unit"]))
                row.samples(way).extend(found["samples"])
                row.program = [bench.program("driver_calls"), "--only", found["name"], "--seconds", "6"] if profile_runs else []
        longest = max(longest, time.monotonic() - began)
        rounds += 1
        if bench.smoke:
            break
    return list(rows.values())


class Worker:
    """A model_worker.py that answers requests for samples."""

    def __init__(self, way, part):
        self.way = way
        self.child = Child(way.command([sys.executable, os.path.join(HERE, "model_worker.py"), part]), way.name)

    def answer(self, timeout_s):
        return json.loads(self.child.line(("[", "{"), timeout_s))  # libraries print, too

    def samples(self, count, timeout_s):
        self.child.say(str(count))
        return self.answer(timeout_s)

    def end(self):
        self.child.end(20)


MODELS = [("bert-graph", "BERT-base fp16 batch 1, CUDA graph", 50), ("bert-eager", "BERT-base fp16 batch 1, eager", 30),
          ("gpt2-training", "GPT-2-medium training step, 8 x 1024, bf16", 4),
          ("resnet-training", "ResNet-50 training step, batch 64, DataLoader", 2)]


def compare_first_results(bench, part, first, timeout_s):
    """What the row says about them; where they differ a second native run tells whether native ones agree at all."""
    if len(first) < 2:
        return ""
    if len(set(first.values())) == 1:
        return "first result equal bit for bit"
    second = Worker(bench.native, part)
    try:
        again = second.answer(timeout_s)["digest"]
    finally:
        second.end()
    said = ", ".join(f"{way} {value}" for way, value in first.items())
    if again != first[bench.native.name]:
        return f"not deterministic: first results are {said}, and of a second native run {again}"
    return f"FIRST RESULTS DIFFER: {said}; a second native run gives {again}"


def measure_model(bench, seconds, part, name, samples_at_a_time):
    """All workers stay alive and are asked by turns, so all meet the same machine."""
    row = Row(name, "ms")
    workers = []
    deadline = time.monotonic() + seconds
    try:
        first = {}
        bench.progress(f"{name}: all build and warm up")
        for way in bench.ways():
            workers.append(Worker(way, part))
        for worker in workers:
            first[worker.way.name] = worker.answer(max(120, seconds))["digest"]
        row.note = compare_first_results(bench, part, first, max(120, seconds))
        bench.progress(f"{name}: by turns")
        turns = 0
        while turns < 3 or (time.monotonic() < deadline and turns < 40):
            for worker in workers:
                worker.samples(1, 120)  # the first one after a pause is not counted
                samples = worker.samples(samples_at_a_time, 120)
                row.samples(worker.way).extend(samples)
            turns += 1
    finally:
        for worker in workers:
            worker.end()
    return [row]


def _first_result(way, words, timeout_s):
    """Seconds from the start of the process to its first line."""
    began = time.monotonic()
    with subprocess.Popen(way.command(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline() if selector.select(timeout_s) else ""
        seconds = time.monotonic() - began
        if not line:
            process.kill()
            raise Failed(f"{way.name}: no first result: " + process.stderr.read().strip()[-400:])
        process.stdout.read()
        process.wait(60)
    return seconds


def measure_start(bench, seconds, what, words):
    """A program under a tallyd that has run nothing yet, then later programs of the same tallyd, against native ones."""
    first = Row(f"process start to first result, {what}: first program of a tallyd", "s")
    later = Row(f"process start to first result, {what}: next program", "s")
    deadline = time.monotonic() + seconds
    rounds = 0
    longest = 0
    if bench.native is not None:
        _first_result(bench.native, words, 300)  # files come from the disk only once
    while rounds < (1 if bench.smoke else 2) or (time.monotonic() + longest < deadline and rounds < 6):
        began = time.monotonic()
        bench.progress(f"process start, {what}: round {rounds + 1}")
        with ways.daemon(bench.root, bench.driver, bench.priority) as fresh:
            first.tally.append(_first_result(fresh, words, 300))
            for _ in range(1 if bench.smoke else 2):
                if bench.native is not None:
                    first.native.append(_first_result(bench.native, words, 300))
                later.tally.append(_first_result(fresh, words, 300))
        longest = max(longest, time.monotonic() - began)
        rounds += 1
        if bench.smoke:
            break
    later.native = list(first.native)
    return [first, later]


def measure_idle(bench, seconds):
    """CPU time of tallyd and executor while ten programs are attached and do nothing."""
    row = Row("idle CPU of tallyd and executor, 10 attached idle clients", "% of a core")
    clients_row = Row("CPU of the 10 attached idle clients", "% of a core")
    clients = []
    with ways.daemon(bench.root, bench.driver, bench.priority) as way:
        try:
            for _ in range(10):
                # pylint: disable-next=consider-using-with
                clients.append(subprocess.Popen(way.command([bench.program("driver_calls"), "--attach"]),
                                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for client in clients:
                if client.stdout.readline() != "attached\n":
                    raise Failed("an idle client did not attach")
            bench.progress("idle CPU with 10 attached clients")
            pids = [way.process.pid] + way.executors()
            time.sleep(2)  # what follows the attaching is not idling
            for _ in range(max(1, int(seconds))):
                before = _cpu(pids), _cpu([client.pid for client in clients]), time.monotonic()
                time.sleep(1)
                elapsed = time.monotonic() - before[2]
                row.tally.append((_cpu(pids) - before[0]) / elapsed / 1e7)
                clients_row.tally.append((_cpu([client.pid for client in clients]) - before[1]) / elapsed / 1e7)
        finally:
            for client in clients:
                client.stdin.close()
            for client in clients:
                try:
                    client.wait(20)
                except subprocess.TimeoutExpired:
                    client.send_signal(signal.SIGKILL)
                    client.wait()
                client.stdout.close()
    return [row, clients_row]


def _cpu(pids):
    return sum(thread.cpu_ns for pid in pids for thread in processes.threads(pid).values())


def profile(bench, row, seconds=3):
    """Where the processor time goes while a row's program runs under tally-run again, thread by thread."""
    words = bench.tally.command(row.program)
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(0.7)  # its start is not what is looked at
            pids = {"client": process.pid, "tallyd": bench.tally.process.pid}
            pids.update({f"executor {pid}": pid for pid in bench.tally.executors()})
            before = {label: processes.threads(pid) for label, pid in pids.items()}
            began = time.monotonic()
            while process.poll() is None and time.monotonic() - began < seconds:
                after = {label: processes.threads(pid) for label, pid in pids.items()}
                elapsed = time.monotonic() - began
                time.sleep(0.05)
            if elapsed < 0.2:
                raise Failed("it ran too short a time for a profile")
        finally:
            process.kill()
            process.wait()
    return [use for use in processes.use_between(before, after, elapsed) if use.cpu_percent >= 0.5]
