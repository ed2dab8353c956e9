#!/usr/bin/env python3
"""A service in company: of more of its kind, of a service of another level, of trainings of several weights, in bursts.

    python3 bench/colocation/company.py --parts services,levels,bursts --json company.json --output company.md
    python3 bench/colocation/bursts_plot.py company.json bursts.svg --csv bursts.csv    # needs matplotlib; anywhere

    services  up to nine more of the same service as best-effort programs, each at --services-load   (the Tally paper's Fig. 6a)
    levels    the service twice, at level 1 and 0, each at half of --load, beside three trainings of weight 100, 200 and 400
    bursts    --bursts-seconds of a load that changes each second; what each second cost, gave, and why  (Fig. 5b)

Each part has tallyds of its own. Programs and what an own time is: README.md. Without a GPU only --smoke makes sense.
"""
import dataclasses
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import machine
import trace
import ways
from parts import Bench, Part
from room import arrivals, own_p99, p99, under
# pylint: enable=wrong-import-position

NUM_SERVICES = (1, 2, 3, 5, 10)
# Where slices are set from outside: at 1 us each, the others would do nothing but switch (docs/scheduling.md#time-slices-of-the-gpu).
SLICE_OF_MANY = {"TALLY_TIME_SLICE_US": "500"}
LEVELS, WEIGHTS = (1, 0), (100, 200, 400)
CHANGING = dataclasses.replace(trace.KINDS["bursty"], bin_s=1.0, correlation=0.5)
GAPS = ("gaps_hit", "gaps_late", "gaps_by_rule", "gaps_by_guard")


def services(room):
    """Rows, by how many there are; the first of them is the service, the others are best-effort."""
    options, counts = room.options, NUM_SERVICES[:2] if room.options.smoke else NUM_SERVICES
    wanted = [("service", options.service, None, "service")] + [("service", options.service, SLICE_OF_MANY, "training")] * (counts[-1] - 1)
    with room.workers(wanted) as found:
        capacity, rows = found[0].per_second(options.seconds / 6), []
        for count in counts:
            asked = [(service, arrivals(options.services_load, capacity, options.seconds, f"services {index}"))
                     for index, service in enumerate(found[:count])]
            first, *others = room.serve_at_once(asked, options.seconds)
            rows.append({"count": count, "per_second": len(asked[0][1]) / options.seconds, "service": first, "others": others,
                         "served_per_second": sum(num_served(answer) for answer in (first, *others)) / options.seconds})
    return rows


def num_served(answer):
    return len(answer["own_ms"])


def levels(room):
    options = room.options
    wanted = [("service", options.service, {"TALLY_LEVEL": str(level)}, "service") for level in LEVELS]
    wanted += [("training", options.training, {"TALLY_WEIGHT": str(weight)}, "training") for weight in WEIGHTS]
    with room.workers(wanted) as found:
        both, trainings = found[:len(LEVELS)], found[len(LEVELS):]
        capacity = both[0].per_second(options.seconds / 6)
        asked = [(service, arrivals(options.load / 2, capacity, options.seconds, f"level {level}")) for service, level in zip(both, LEVELS)]
        rows = {"alone": [room.serve_at_once([one], options.seconds)[0] for one in asked], "both": room.serve_at_once(asked, options.seconds)}
        rows["all"], rates = room.beside(trainings, lambda: room.serve_at_once(asked, options.seconds))
        _, among = room.beside(trainings, lambda: time.sleep(options.seconds / 2))
        return {**rows, "rates": rates, "rates_among": among, "solo": room.solo(trainings[0])}


class Said(threading.Thread):
    """What tallyctl says of the service's gaps, about each half second, until the block ends; nothing natively."""

    def __init__(self, place):
        super().__init__()
        self.place, self.over, self.samples = place, threading.Event(), []

    def run(self):
        while hasattr(self.place.way, "ctl") and not self.over.wait(0.5):
            high = [row for row in self.place.way.ctl("ps") if row["class"] == "high"]
            self.samples.append({"when": time.monotonic(), **{name: sum(row.get(name, 0) for row in high)
                                                              for name in (*GAPS, "gap_hold_ns", "prefers_holding")}})

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.join()


def bursts(room):
    options, seconds = room.options, max(1, int(room.options.bursts_seconds))
    with room.workers([("service", options.service, None, "service"), ("training", options.training, None, "training")]) as (service, training):
        capacity, solo = service.per_second(options.seconds / 6), room.solo(training)
        times = trace.arrivals(seconds, options.load / 100, capacity, "bursts", CHANGING)
        alone = service.serve_at(times, seconds, time.monotonic() + 0.2)
        with Said(room.place) as said, room.working(training) as rate:
            time.sleep(1)
            begin = time.monotonic() + 0.2
            beside = service.serve_at(times, seconds, begin)
        return {"arrivals": [round(moment, 5) for moment in times], "capacity": capacity, "alone": alone, "beside": beside, "solo": solo,
                "training": [rate(begin + second, begin + second + 1) for second in range(seconds)],
                "said": [{**sample, "when": round(sample["when"] - begin, 3)} for sample in said.samples]}


def by_second(found):
    """A row for each second of bursts: offered load, p99 alone and beside, the training's steps, and how gaps were decided about."""
    rows = []
    for second, steps in enumerate(found["training"]):
        here = [index for index, moment in enumerate(found["arrivals"]) if int(moment) == second]
        ends = [max((sample for sample in found["said"] if sample["when"] <= moment), key=lambda sample: sample["when"], default=None)
                for moment in (second, second + 1)]
        row = {"offered": len(here) / found["capacity"], "training": steps}
        for name in ("alone", "beside"):
            row[name] = machine.quantile([found[name]["latencies_ms"][index] for index in here], 0.99) if here else None
        if all(ends):
            row["gaps"] = {name: ends[1][name] - ends[0][name] for name in (*GAPS, "gap_hold_ns")}
        rows.append(row)
    return rows


def services_page(name, rows):
    alone = rows[0]["service"]
    text = [f"## Services, {name}", "", f"Each is asked {rows[0]['per_second']:.0f} times a second; the first is high-priority, the others best-effort.", "",
            "| services | own p50, p99 of the first | p99 over alone | p99 from arrival | over alone | served a second, all | own p99 of the others | not served |",
            "|---:|---|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        mine, others = row["service"], [own for other in row["others"] for own in other["own_ms"]]
        text.append(f"| {row['count']} | {machine.quantile(mine['own_ms'], 0.5):.3f}, {own_p99(mine):.3f} | {own_p99(mine) / own_p99(alone):.3f} | {p99(mine):.3f} | "
                    f"{p99(mine) / p99(alone):.3f} | {row['served_per_second']:.0f} | {f'{machine.quantile(others, 0.99):.3f}' if others else '-'} | "
                    f"{mine['unserved'] + sum(other['unserved'] for other in row['others'])} |")
    return text + [""]


def levels_page(name, found):
    text = [f"## Levels and weights, {name}", "", "| service of level | own p99: alone, beside the other, beside all | p99 from arrival | not served |", "|---:|---|---|---|"]
    for index, level in enumerate(LEVELS):
        cells = [found[when][index] for when in ("alone", "both", "all")]
        text.append(f"| {level} | " + ", ".join(f"{own_p99(cell):.3f}" for cell in cells) + " | " + ", ".join(f"{p99(cell):.3f}" for cell in cells)
                    + " | " + ", ".join(str(cell["unserved"]) for cell in cells) + " |")
    text += ["", "| training of weight | of solo, beside the services | share of the three | of solo, without services | share of the three | due |", "|---:|---:|---:|---:|---:|---:|"]
    for index, weight in enumerate(WEIGHTS):
        parts = [f"{rates[index] / (found['solo'] or 1):.3f} | {rates[index] / (sum(rates) or 1):.3f}" for rates in (found["rates"], found["rates_among"])]
        text.append(f"| {weight} | " + " | ".join(parts) + f" | {weight / sum(WEIGHTS):.3f} |")
    return text + [""]


def bursts_page(name, found):
    text = [f"## Bursts, {name}", "", f"The training alone: {found['solo']:.2f} steps a second.", "",
            "| second | offered | p99 from arrival: alone, beside | training, steps a second | gaps: held until the request, not so long, not (rule), not (guard) | held, ms |",
            "|---:|---:|---|---:|---|---:|"]
    for second, row in enumerate(by_second(found)):
        gaps = row.get("gaps")
        latencies = ", ".join("-" if row[when] is None else f"{row[when]:.2f}" for when in ("alone", "beside"))
        told = f"{', '.join(str(gaps[key]) for key in GAPS)} | {gaps['gap_hold_ns'] / 1e6:.0f}" if gaps else "- | -"
        text.append(f"| {second} | {row['offered']:.0%} | {latencies} | {row['training']:.2f} | {told} |")
    return text + [""]


PARTS = {
    "services": Part({"natively": "native", "the default": under(), "driver-slices": "driver-slices", "mps-priority": "mps-priority"},
                     services, services_page, lambda rows: [cell for row in rows for cell in (row["service"], *row["others"])]),
    # The default refuses levels and weights: nobody there could keep to them.
    "levels": Part({"own contexts": under("--policy", "tally"),
                    "one context": under("--policy", "tally", "--share-contexts", "--transforms", "gate"), "natively": "native"},
                   levels, levels_page, lambda found: [cell for when in ("alone", "both", "all") for cell in found[when]]),
    "bursts": Part({"natively": "native", "the default": under(), "driver-slices": "driver-slices"},
                   bursts, bursts_page, lambda found: [found["alone"], found["beside"]]),
}
BENCH = Bench(__doc__, "{service} in company, beside {training}", PARTS,
              options=(("--services-load", "per cent of its capacity that each of the services is asked for", 10, float),
                       ("--bursts-seconds", "of bursts", 20, float)))

if __name__ == "__main__":
    ways.run_bench(BENCH.main)
