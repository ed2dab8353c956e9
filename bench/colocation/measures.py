"""Numbers from finished cells. A cell here is its record in the JSON file."""
import math
import random

import modes
import trace
from machine import quantile

# What a request can wait for beyond what it waits for alone, by size: up to SWITCH_US it is a switch between contexts (0.13 to 0.25 ms on an
# H200), up to SLICE_US the rest of a time slice of the driver's (2 ms), beyond that something that nothing preempts.
SWITCH_US, SLICE_US = 500, 2500
BLOCK_S = 0.25  # requests that arrived within one block belong together: they met the same queue


def trace_of(record):
    """The arrivals of a record, made again, as it says how bursty they were: what traces are made of may change."""
    return trace.arrivals(record["seconds"], record["load"], record["capacity"], seed_of(record), trace.Burstiness(**record["burstiness"]))


def seed_of(record):
    """The same in all modes: they are compared with the same requests."""
    return f"{record['service']} {record['load']} {record['repetition']}"


def rate(started, completions, begin, seconds):
    """Steps per second within a window; a step that is partly in it counts with that part."""
    moments = [started, *completions]

    def progress(moment):
        if moment <= moments[0]:
            return 0.0
        for index in range(1, len(moments)):
            if moments[index] >= moment:
                return index - 1 + (moment - moments[index - 1]) / (moments[index] - moments[index - 1])
        return len(moments) - 1.0

    return (progress(begin + seconds) - progress(begin)) / seconds


def samples(records):
    """[(latency, block)] of all records; blocks of one trace have the same names in all modes."""
    found = []
    for record in records:
        for arrival, latency in zip(trace_of(record), record["latencies_ms"]):
            found.append((latency, (record["repetition"], int(arrival / BLOCK_S))))
    return sorted(found, reverse=True)


def weighted_quantile(descending, weights, q):
    """Of samples sorted downwards, each as often as its block was drawn; for q near 1 it looks at few of them."""
    whole = sum(weights.get(block, 0) * count for block, count in descending["counts"].items())
    above = (1 - q) * whole
    seen = 0
    for latency, block in descending["samples"]:
        seen += weights.get(block, 0)
        if seen > above:
            return latency
    return descending["samples"][-1][0]


def _prepared(records):
    ordered = samples(records)
    counts = {}
    for _, block in ordered:
        counts[block] = counts.get(block, 0) + 1
    return {"samples": ordered, "counts": counts}


def ratio_interval(records, alone, q, resamples=200):
    """95 % interval of the ratio of quantiles, by drawing blocks of the trace (the same ones for both) with replacement."""
    mine, base = _prepared(records), _prepared(alone)
    blocks = sorted(set(mine["counts"]) & set(base["counts"]))
    source = random.Random(0)
    ratios = []
    for _ in range(resamples):
        weights = {}
        for block in source.choices(blocks, k=len(blocks)):
            weights[block] = weights.get(block, 0) + 1
        ratios.append(weighted_quantile(mine, weights, q) / weighted_quantile(base, weights, q))
    return quantile(ratios, 0.025), quantile(ratios, 0.975)


def service_times(record):
    """Milliseconds of each request from when it was asked for: latency without the queue, which makes of small delays large ones. Where that
    was not measured (stand-ins of tests, results of before it was): from when it could begin, which is before the check of the one before it."""
    if "own_ms" in record:
        return record["own_ms"]
    found, free = [], 0.0
    for arrival, latency in zip(trace_of(record), record["latencies_ms"][:len(record["latencies_ms"]) - record["unserved"]]):
        done = arrival + latency / 1e3
        found.append((done - max(arrival, free)) * 1e3)
        free = done
    return found


def was_behind(record):
    """Of each served request: the one before it was not complete when it came."""
    found, free = [], 0.0
    for arrival, latency in zip(trace_of(record), record["latencies_ms"][:len(record["latencies_ms"]) - record["unserved"]]):
        found.append(arrival < free)
        free = arrival + latency / 1e3
    return found


def there_and_back(records):
    """Of each request, in us: its own time but for that from its first to its last work on the GPU. What a mode costs that is between the
    program and the GPU shows here, whatever the GPU's clock does meanwhile. Of eager services the GPU also waits in between. [] if not measured."""
    if not all(record.get("gpu_us") for record in records):
        return []
    return [own * 1e3 - gpu for record in records for own, gpu in zip(service_times(record), record["gpu_us"])]


def first_kernels(records, alone):
    """From when requests were asked for until their first kernel ran, in us, and how much longer than alone that is; {} if not measured."""
    if not all(record.get("waits_us") for record in (*records, *alone)):
        return {}
    waits, base = ([wait for record in group for wait in record["waits_us"]] for group in (records, alone))
    found = {"clock_error": max(record["clock_error_us"] for record in (*records, *alone))}
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1)):
        found[name], found[name + "_alone"] = quantile(waits, q), quantile(base, q)
    kinds = [(wait, behind) for record in records for wait, behind in zip(record["waits_us"], was_behind(record))]
    for name, is_behind in (("p99_after_pause", False), ("p99_behind", True)):
        mine = [wait for wait, behind in kinds if behind == is_behind]
        found[name] = quantile(mine, 0.99) if mine else None
    bounds = (-math.inf, found["p99_alone"], found["p99_alone"] + SWITCH_US, found["p99_alone"] + SLICE_US, math.inf)
    found["shares"] = [sum(low < wait <= high for wait in waits) / len(waits) for low, high in zip(bounds, bounds[1:])]
    return found


def busy_share(records, alone):
    """The part of the time in which the GPU worked for the service: requests served within the trace, by what each takes from its first to
    its last work on the GPU when it is `alone` (beside a training that includes waiting for it). Of eager services the gaps between their
    kernels are in it, which a training can use. None where that was not measured."""
    gpu_us = [time for record in alone for time in record.get("gpu_us", ())]
    if not gpu_us:
        return None
    served = sum(map(served_within, records)) / sum(record["seconds"] for record in records)
    return min(1.0, served * sum(gpu_us) / len(gpu_us) / 1e6)


def served_within(record):
    """Requests that were complete by the end of the trace."""
    served = record["latencies_ms"][:len(record["latencies_ms"]) - record["unserved"]]
    return sum(arrival + latency / 1e3 <= record["seconds"] for arrival, latency in zip(trace_of(record), served))


class Results:
    """The records by what was measured."""

    def __init__(self, records):
        self.done = [record for record in records if record["status"] == "done"]

    def find(self, **wanted):
        return [record for record in self.done if all(record[key] == value for key, value in wanted.items())]

    def solo_rate(self, training):
        rates = [record["rates"][0] for record in self.find(mode="alone", service="", training=training)]
        return sum(rates) / len(rates) if rates else None

    def beside_idle(self):
        """Trainings in modes whose services were there and had no requests: [(training, mode, shares of the solo rate)]. Each is compared
        with the solo runs of its own repetition, as the machine changes within minutes."""
        solo = {}
        for record in self.find(mode="alone", service=""):
            solo.setdefault((record["training"], record["repetition"]), []).append(record["rates"][0])
        shares = {}
        for record in self.find(service=""):
            base = solo.get((record["training"], record["repetition"]))
            if record["mode"] != "alone" and base:
                shares.setdefault((record["training"], record["mode"]), []).append(record["rates"][0] * len(base) / sum(base))
        return [(*key, values) for key, values in sorted(shares.items())]

    def alone_beside(self, mode, service, load):
        """Runs alone, natively, of the time in which `mode` was measured: minutes later the machine may be another."""
        alone = self.find(mode="alone", service=service, load=load, training="")
        return [record for record in alone if mode in record.get("group", "").split(",")] or alone

    def alone_in_mode(self, mode, service, load, repetitions):
        """Runs of the service alone under the mode itself, of these repetitions; for native modes that is natively alone."""
        if mode in modes.NATIVE:
            mode = "alone"
        return [record for record in self.find(mode=mode, service=service, load=load, training="") if record["repetition"] in repetitions]

    @staticmethod
    def by_repetition(records, alone):
        """[(records, records alone)] of each repetition; both have the same ones."""
        return [[[record for record in group if record["repetition"] == repetition] for group in (records, alone)]
                for repetition in sorted({record["repetition"] for record in records})]

    def row(self, mode, service, load, training, count, with_interval=True):
        """What a mode does to a pair; None if it was not measured. Only repetitions count that were measured alone, too."""
        records = self.find(mode=mode, service=service, load=load, training=training, count=count)
        alone = self.alone_beside(mode, service, load)
        common = {record["repetition"] for record in records} & {record["repetition"] for record in alone}
        records = [record for record in records if record["repetition"] in common]
        alone = [record for record in alone if record["repetition"] in common]
        if not records:
            return None
        latencies = [latency for record in records for latency in record["latencies_ms"]]
        base = [latency for record in alone for latency in record["latencies_ms"]]
        row = {"mode": mode, "service": service, "load": load, "training": training, "count": count, "repetitions": len(common),
               "requests": len(latencies), "wrong": sum(record["wrong"] for record in records),
               "unserved": sum(record["unserved"] for record in records)}
        for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1)):
            row[name], row[name + "_alone"] = quantile(latencies, q), quantile(base, q)
        for name in ("p50", "p99"):
            row[name + "_overhead"] = row[name] / row[name + "_alone"] - 1
        own, own_alone = ([time for record in group for time in service_times(record)] for group in (records, alone))
        for name, q in (("p50", 0.5), ("p99", 0.99)):
            row["own_" + name] = quantile(own, q)
            row[f"own_{name}_overhead"] = quantile(own, q) / quantile(own_alone, q) - 1
        in_mode = self.alone_in_mode(mode, service, load, common)
        if training and {record["repetition"] for record in in_mode} == common:
            base = [latency for record in in_mode for latency in record["latencies_ms"]]
            own_base = [time for record in in_mode for time in service_times(record)]
            row["p99_alone_in_mode"], row["own_p99_alone_in_mode"] = quantile(base, 0.99), quantile(own_base, 0.99)
            row["p99_over_alone_in_mode"] = row["p99"] / row["p99_alone_in_mode"] - 1
            row["own_p99_over_alone_in_mode"] = row["own_p99"] / row["own_p99_alone_in_mode"] - 1
        row["busy"] = busy_share(records, in_mode or alone)
        ways = there_and_back(records), there_and_back(alone)
        if all(ways):
            for name, q in (("p50", 0.5), ("p99", 0.99)):
                row[f"way_{name}"], row[f"way_{name}_alone"] = (quantile(way, q) for way in ways)
                row[f"way_{name}_more"] = (row[f"way_{name}"] - row[f"way_{name}_alone"]) / (quantile(own_alone, q) * 1e3)
            row["way_p50_more_by_run"] = [(quantile(there_and_back(mine), 0.5) - quantile(there_and_back(base), 0.5)) / (quantile(own_alone, 0.5) * 1e3)
                                          for mine, base in self.by_repetition(records, alone)]
        if with_interval:
            row["first_kernel"] = first_kernels(records, alone)
            row["p99_overhead_interval"] = [bound - 1 for bound in ratio_interval(records, alone, 0.99)]
        solo = self.solo_rate(training) if training else None
        if solo:
            rates = [sum(record["rates"]) for record in records]
            row["best_effort_share"] = sum(rates) / len(rates) / solo
            row["best_effort_range"] = [min(rates) / solo, max(rates) / solo]
            if row["busy"] is not None and row["busy"] < 1:
                row["share_of_the_rest"] = row["best_effort_share"] / (1 - row["busy"])
            served = sum(map(served_within, records)) / len(records)
            served_alone = sum(map(served_within, alone)) / len(alone)
            if served_alone:
                row["system_throughput"] = served / served_alone + row["best_effort_share"]
        return row

    def rows(self, with_interval=True):
        """Of everything that was measured with a service, in the order of the records."""
        kinds = dict.fromkeys((record["mode"], record["service"], record["load"], record["training"], record["count"])
                              for record in self.done if record["service"])
        found = [self.row(*kind, with_interval=with_interval) for kind in kinds]
        return [row for row in found if row]
