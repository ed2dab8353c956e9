#!/usr/bin/env python3
"""What a service is promised beside best-effort programs, and what keeping it costs them.

    python3 bench/colocation/promises.py --parts objectives,faults,starts,bound --json promises.json --output promises.md

    objectives   tally-run --slo p99=...: is each of three latencies held, and does the training get more the later they are?
    faults       a program that goes wrong on the GPU (faulty.py) is started beside the service each second; natively, too
    starts       what a context costs a service that is asked each millisecond while it is made, by how many GPU channels it has
    bound        tallyd --starvation-bound, beside a service that makes one request after another without a pause

Each part has tallyds of its own. Programs and what an own time is: README.md. Without GPUs only --smoke makes sense.
"""
import argparse
import collections.abc
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import catalogue
import command_line
import faulty
import machine
import measures
import modes
import output
import stage
import ways
# pylint: enable=wrong-import-position

HERE = os.path.dirname(os.path.abspath(__file__))
OVER_ALONE = (2.0, 1.4, 1.05)  # of the own p99 beside nobody
LATE, STOOD_STILL_MS = 1.6, 50  # a request that took so many times the median; what is longer waited for a fault


@dataclasses.dataclass(frozen=True)
class Part:
    rooms: dict  # by name: as `under` gives it; None: natively
    measure: collections.abc.Callable
    page: collections.abc.Callable
    cells: collections.abc.Callable  # what the service answered, of what was measured


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = command_line.option_adder(parser)
    option("--parts", ", ".join(PARTS), ",".join(PARTS))
    option("--pair", "SERVICE:TRAINING of catalogue.py", "bert-graph:whisper")
    option("--load", "per cent of the service's capacity", 50, type=float)
    option("--seconds", "of requests in a cell", 6, type=float)
    option("--settle", "seconds before that for an objective to be reached", 5, type=float)
    option("--start-limit", "seconds in which a program must be ready", 120, type=float)
    option("--json", "all times", dest="json_path")
    option("--output", "Markdown file; it also goes to stdout")
    option("--smoke", "does everything run? Stand-in programs, software driver, no numbers", action="store_true")
    chosen = parser.parse_args(words)
    catalogue.choose_pair(chosen, parser)
    chosen.parts = chosen.parts.split(",")
    if not set(chosen.parts) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    return chosen


def under(*arguments, **environment):
    """A tallyd with these options; the environment is its executors', too."""
    return {"arguments": arguments, "env": environment}


class Room:
    """A tallyd and who works under it; `tallyd` None: natively. A context: all ends with it."""

    def __init__(self, root, options, name, tallyd):
        self.options, self.stack = options, contextlib.ExitStack()
        cache, self.turns = (self.stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-bench-")) for _ in range(2))
        if tallyd is None:
            self.place = self.stack.enter_context(modes.enter(root, "native", options.smoke))
        else:
            driver = "sim" if options.smoke else "cuda"
            arguments = ["--cache-directory", cache, *tallyd["arguments"]]
            way = self.stack.enter_context(ways.daemon(root, driver, arguments=arguments, env=tallyd["env"], name=name))
            self.place = modes.Place(name, way)
        self.num_workers = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stack.close()

    @contextlib.contextmanager
    def worker(self, role, program, environment=None):
        self.num_workers += 1
        worker = stage.Worker(self.place, role, program, self.num_workers, os.path.join(self.turns, str(self.num_workers)), environment)
        try:
            worker.make_ready(self.options.start_limit)
            yield worker
        finally:
            worker.child.end(8)

    def serve(self, service, capacity, seconds, seed):
        return service.serve(self.options.load, capacity, seconds, time.monotonic() + 0.2, seed)

    @contextlib.contextmanager
    def working(self, training):
        """The training works meanwhile. Gives what tells its steps per second between two moments, afterwards."""
        started, completions = time.monotonic(), []
        training.child.say(json.dumps({"train": True}))
        try:
            yield lambda begin, end: measures.rate(started, completions, begin, end - begin)
        finally:
            training.child.say(json.dumps({"stop": True}))
            completions.extend(training.answer(stage.LIMIT_S)["completions"])

    def beside(self, training, work):
        """(what `work` gave, the training's steps per second meanwhile)."""
        with self.working(training) as rate:
            time.sleep(0.1 if self.options.smoke else stage.LEAD_S)
            begin = time.monotonic()
            found = work()
            end = time.monotonic()
        return found, rate(begin, end)

    def solo(self, training):
        return self.beside(training, lambda: time.sleep(self.options.seconds / 2))[1]


def own_p99(cell):
    return machine.quantile(cell["own_ms"], 0.99)


def objectives(room):
    """Rows, one for each objective; the first without one."""
    options, rows = room.options, []
    with room.worker("training", options.training) as training:
        solo = room.solo(training)
        for over in (None, *(OVER_ALONE[:1] if options.smoke else OVER_ALONE)):
            slo = f"p99={over * own_p99(rows[0]['alone']) * 1000:.0f}us" if over else ""
            with room.worker("service", options.service, {"TALLY_SLO": slo} if over else None) as service:
                row = {"objective": slo, "over_alone": over, "solo": solo}
                if not over:
                    capacity = service.per_second(options.seconds / 6)
                    row["alone"] = room.serve(service, capacity, options.seconds, "alone")
                with room.working(training) as rate:
                    room.serve(service, capacity, options.settle, "settle")
                    begin = time.monotonic()
                    row["beside"] = room.serve(service, capacity, options.seconds, "alone")
                    end = time.monotonic()
                    row["said"] = [said for said in room.place.way.ctl("ps") if said.get("slo")]
                row["rate"] = rate(begin, end)
                rows.append(row)
    return rows


class Faults(threading.Thread):
    """Starts one program of a kind each second until it is told to stop."""

    def __init__(self, place, kind):
        super().__init__()
        self.place, self.kind, self.over = place, kind, threading.Event()
        self.ends = []

    def run(self):
        while not self.over.is_set():
            began = time.monotonic()
            words = self.place.command([sys.executable, os.path.join(HERE, "faulty.py"), self.kind], "training")
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
                try:
                    said, _ = program.communicate(timeout=0.7 if self.kind == "endless" else 20)
                except subprocess.TimeoutExpired:
                    program.kill()
                    said, _ = program.communicate()
                    said += "killed"
            self.ends.append({"said": (said.strip().splitlines() or ["nothing"])[-1], "seconds": time.monotonic() - began})
            self.over.wait(max(0.0, began + 1 - time.monotonic()))

    def stop(self):
        self.over.set()
        self.join()


def faults(room):
    """Rows, one for each kind of fault; the first without one."""
    options, rows = room.options, []
    with room.worker("service", options.service) as service:
        capacity = service.per_second(options.seconds / 6)
        kinds = ("illegal-access", "endless") if options.smoke else faulty.KINDS
        for kind in ("nobody", *kinds, "nobody again"):
            programs = Faults(room.place, kind) if kind in faulty.KINDS else None
            if programs:
                programs.start()
            try:
                rows.append({"kind": kind, "service": room.serve(service, capacity, options.seconds, "faults")})
            finally:
                if programs:
                    programs.stop()
            rows[-1]["ends"] = programs.ends if programs else []
    return rows


def starts(room):
    """Each program faults, so that the next one gets a context of its own, under Tally, too."""
    with room.worker("service", room.options.service) as service:
        programs = Faults(room.place, "illegal-access")
        programs.start()
        try:
            arrivals = [number * 1e-3 for number in range(int(room.options.seconds * 1000))]
            answer = service.serve_at(arrivals, room.options.seconds, time.monotonic() + 0.2)
        finally:
            programs.stop()
    return {"service": answer, "ends": programs.ends}


def bound(room):
    options = room.options
    with room.worker("service", options.service) as service, room.worker("training", options.training) as training:
        solo, alone = room.solo(training), service.per_second(options.seconds)
        beside, rate = room.beside(training, lambda: service.per_second(options.seconds))
    return {"solo": solo, "rate": rate, "alone_per_second": alone, "beside_per_second": beside}


def as_told(session):
    return f"{session['slo_observed_ns'] / 1e6:.3f} ms, {session['slo_caution']:.2f}"


def objectives_page(name, rows):
    alone = own_p99(rows[0]["alone"])
    text = [f"## Objectives, {name}", "", f"Own p99 alone in the mode: {alone:.3f} ms.", "",
            "| objective | over alone | own p99 beside | over the objective | training, of solo | not served | tallyctl ps: p99, caution |", "|---|---:|---:|---:|---:|---:|---|"]
    for row in rows:
        p99 = own_p99(row["beside"])
        over = f"{p99 / (row['over_alone'] * alone):.3f}" if row["over_alone"] else "-"
        text.append(f"| {row['objective'] or 'none'} | {row['over_alone'] or '-'} | {p99:.3f} | {over} | {row['rate'] / row['solo']:.3f} | "
                    f"{row['beside']['unserved']} | {'; '.join(as_told(said) for said in row['said']) or '-'} |")
    return text + [""]


def faults_page(name, rows):
    first = own_p99(rows[0]["service"])
    text = [f"## Faults beside the service, {name}", "", "| each second | ends, the longest after | requests | wrong, not served | own p50, p99, worst | p99 over nobody |",
            "|---|---|---:|---|---|---:|"]
    for row in rows:
        own = row["service"]["own_ms"]
        said = [end["said"] for end in row["ends"]]
        ends = ", ".join(f"{said.count(end)} x {end}" for end in dict.fromkeys(said))
        ends += f", {max(end['seconds'] for end in row['ends']):.1f} s" if ends else ""
        text.append(f"| {row['kind']} | {ends or '-'} | {len(own)} | {row['service']['wrong']}, {row['service']['unserved']} | "
                    f"{machine.quantile(own, 0.5):.3f}, {own_p99(row['service']):.3f}, {max(own):.3f} | {own_p99(row['service']) / first:.3f} |")
    return text + [""]


def starts_page(name, found):
    own = found["service"]["own_ms"]
    late = [took for took in own if LATE * machine.quantile(own, 0.5) < took < STOOD_STILL_MS]
    seconds = [end["seconds"] for end in found["ends"]]
    return [f"## Contexts that are made beside a service, {name}", "",
            f"{len(seconds)} programs, of {min(seconds):.2f} to {max(seconds):.2f} s; requests of more than {LATE} times the median: "
            f"{len(late)}, {len(late) / len(seconds):.1f} a program, the longest {max(late, default=0):.1f} ms", ""]


def bound_page(name, found):
    return [f"## A service without a pause, {name}", "",
            f"Requests a second: {found['alone_per_second']:.0f} alone, {found['beside_per_second']:.0f} beside the training; "
            f"training, of solo: {found['rate'] / found['solo']:.3f}", ""]


PARTS = {
    # They need a policy that honours them.
    "objectives": Part({"own contexts": under("--policy", "look-ahead"),
                        "one context": under("--policy", "look-ahead", "--share-contexts", "--transforms", "gate")},
                       objectives, objectives_page, lambda rows: [row[when] for row in rows for when in ("alone", "beside") if when in row]),
    "faults": Part({"natively": None, "the default": under()}, faults, faults_page, lambda rows: [row["service"] for row in rows]),
    "starts": Part({"natively": None, "the default": under(),
                    **{f"{channels} GPU channels": under(CUDA_DEVICE_MAX_CONNECTIONS=str(channels)) for channels in (2, 8, 16, 32)}},
                   starts, starts_page, lambda found: [found["service"]]),
    "bound": Part({f"bound {said}": under("--policy", "look-ahead", "--starvation-bound", said) for said in ("off", "100ms")},
                  bound, bound_page, lambda found: []),
}


def page(results):
    text = [f"# What {results['service']} is promised beside {results['training']}", "", *(f"* {key}: {value}" for key, value in results["machine"].items()), ""]
    text += ["No numbers: the software GPU, and programs of one tiny kernel.", ""] if results["smoke"] else []
    for part, found in results["parts"].items():
        for name, numbers in found.items():
            text += PARTS[part].page(name, numbers)
    return "\n".join(text + [f"* not measured: {sentence}" for sentence in results["failures"]]) + "\n"


def problems(results):
    sentences = list(results["failures"])
    for part, rooms in results["parts"].items():
        for name, found in rooms.items():
            num_wrong = sum(cell["wrong"] for cell in PARTS[part].cells(found))
            sentences += [f"{part}, {name}: {num_wrong} wrong outputs"] if num_wrong else []
    return sentences


def main():
    options = read_options()
    root = ways.find_root()
    results = {"machine": machine.describe(root, () if options.smoke else ("torch", "transformers")), "smoke": options.smoke,
               "service": options.service, "training": options.training, "parts": {part: {} for part in options.parts}, "failures": []}
    for part in options.parts:
        rooms = list(PARTS[part].rooms.items())
        for name, tallyd in rooms[:2] if options.smoke else rooms:
            print(f"{part}, {name}", file=sys.stderr, flush=True)
            try:
                with Room(root, options, name, tallyd) as room:
                    results["parts"][part][name] = PARTS[part].measure(room)
            except (ways.Failed, OSError, subprocess.SubprocessError) as failure:
                results["failures"].append(f"{part}, {name}: {failure}")
            output.write(page(results), results, options)
    print(page(results))
    return problems(results)


if __name__ == "__main__":
    ways.run_bench(main)
