#!/usr/bin/env python3
"""What a service is promised beside best-effort programs, and what keeping it costs them.

    python3 bench/colocation/promises.py --parts objectives,faults,starts,bound,again --json promises.json --output promises.md

    objectives   tally-run --slo p99=...: is each of three latencies held, and does the training get more the later they are?
    faults       a program that goes wrong on the GPU (faulty.py) is started beside the service each second; natively, too
    starts       what a context costs a service that is asked each millisecond while it is made, by how many GPU channels it has
    bound        tallyd --starvation-bound, beside a service that makes one request after another without a pause
    again        a training is started twice: one of long blocks gets a context of its own the second time (GPT-2's products do)

Each part has tallyds of its own. Programs and what an own time is: README.md. Without a GPU only --smoke makes sense.
"""
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import faulty
import machine
import ways
from parts import Bench, Part
from room import own_p99, p99, under
# pylint: enable=wrong-import-position

HERE = os.path.dirname(os.path.abspath(__file__))
OVER_ALONE = (2.0, 1.4, 1.05)  # of the own p99 beside nobody
LATE, STOOD_STILL_MS = 1.6, 50  # a request that took so many times the median; what is longer waited for a fault


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
        beside, (rate,) = room.beside([training], lambda: service.per_second(options.seconds))
    return {"solo": solo, "rate": rate, "alone_per_second": alone, "beside_per_second": beside}


def again(room):
    """Rows, one for each start."""
    options, rows = room.options, []
    with room.worker("service", options.service) as service:
        capacity = service.per_second(options.seconds / 6)
        alone = room.serve(service, capacity, options.seconds, "alone")
        for _ in range(2):
            with room.worker("training", options.training) as training:
                solo = room.solo(training)
                beside, (rate,) = room.beside([training], lambda: room.serve(service, capacity, options.seconds, "alone"))
                said = [row for row in room.place.way.ctl("ps") if row["class"] == "best-effort"]
            rows.append({"alone": alone, "beside": beside, "rate": rate, "solo": solo, "domains": [row["domain"] for row in said],
                         "has_long_blocks": any(row["has_long_blocks"] for row in said)})
    return rows


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


def again_page(name, rows):
    text = [f"## A training that is started twice, {name}", "", "| start | domain | long blocks were found | own p99 alone, beside | p99 from arrival | training, of solo in the mode |",
            "|---:|---|---|---|---|---:|"]
    for number, row in enumerate(rows, 1):
        text.append(f"| {number} | {', '.join(row['domains'])} | {'yes' if row['has_long_blocks'] else 'no'} | {own_p99(row['alone']):.3f}, {own_p99(row['beside']):.3f} | "
                    f"{p99(row['alone']):.3f}, {p99(row['beside']):.3f} | {row['rate'] / (row['solo'] or 1):.3f} |")
    return text + [""]


PARTS = {
    # They need a policy that honours them.
    "objectives": Part({"own contexts": under("--policy", "look-ahead"),
                        "one context": under("--policy", "look-ahead", "--share-contexts", "--transforms", "gate")},
                       objectives, objectives_page, lambda rows: [row[when] for row in rows for when in ("alone", "beside") if when in row]),
    "faults": Part({"natively": "native", "the default": under()}, faults, faults_page, lambda rows: [row["service"] for row in rows]),
    "starts": Part({"natively": "native", "the default": under(),
                    **{f"{channels} GPU channels": under(CUDA_DEVICE_MAX_CONNECTIONS=str(channels)) for channels in (2, 8, 16, 32)}},
                   starts, starts_page, lambda found: [found["service"]]),
    "bound": Part({f"bound {said}": under("--policy", "look-ahead", "--starvation-bound", said) for said in ("off", "100ms")},
                  bound, bound_page, lambda found: []),
    "again": Part({"one context": under("--share-contexts", "--transforms", "gate"), "the default": under()},
                  again, again_page, lambda rows: [row[when] for row in rows for when in ("alone", "beside")]),
}


BENCH = Bench(__doc__, "What {service} is promised beside {training}", PARTS,
              options=(("--settle", "seconds before a cell for an objective to be reached", 5, float),))

if __name__ == "__main__":
    ways.run_bench(BENCH.main)
