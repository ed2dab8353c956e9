#!/usr/bin/env python3
"""The bench's page and its CSV. By itself it makes them again from a JSON file: page.py FILE.json [FILE.md [FILE.csv]]"""
import csv
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import measures  # pylint: disable=wrong-import-position
import modes  # pylint: disable=wrong-import-position

COLUMNS = ("mode", "service", "load", "training", "count", "repetitions", "requests", "p50", "p90", "p99", "max", "p50_alone",
           "p99_alone", "p50_overhead", "p99_overhead", "p99_low", "p99_high", "own_p50", "own_p99",
           "own_p50_overhead", "own_p99_overhead", "p99_alone_in_mode", "p99_over_alone_in_mode",
           "own_p99_alone_in_mode", "own_p99_over_alone_in_mode", "busy", "best_effort_share", "share_of_the_rest",
           "system_throughput", "unserved", "wrong")


def write_csv(rows, path):
    with open(path, "w", encoding="utf-8", newline="") as text:
        table = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
        table.writeheader()
        for row in rows:
            low, high = row.get("p99_overhead_interval", ("", ""))
            rounded = {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}
            table.writerow({**rounded, "p99_low": low and round(low, 5), "p99_high": high and round(high, 5)})


def _best_effort_executors(results):
    """Those that say whether they descheduled their contexts, with their modes."""
    return [(mode, executor) for mode, said in results["tallyds"].items() for executor in said.get("executors", ())
            if executor.get("suspension") and executor["class"] == "best-effort"]


def problems(results):
    """What makes a run wrong; a training's first loss may differ between two native runs, so it does not count."""
    found = []
    for record in results["cells"]:
        if record["status"] == "done" and record.get("wrong"):
            found.append(f"{record['mode']}: {record['service']} beside {record['count']} {record['training'] or 'nothing'}: "
                         f"{record['wrong']} requests with other outputs")
    for key, digests in results["digests"].items():
        place, role, name = key.split("|")
        base = results["digests"].get(f"native|{role}|{name}", digests)
        if role == "service" and set(digests) != set(base):
            found.append(f"{place}: {name}: outputs {' '.join(digests)}, natively {' '.join(base)}")
    for mode, executor in _best_effort_executors(results):
        if modes.suspends(mode) and executor["driver"].startswith("CUDA") and executor["suspension"] == "off":
            found.append(f"{mode}: {executor['domain']} did not deschedule its contexts, though the mode is to")
    return found


def failures(results):
    return [f"{record['mode']}: {record['service'] or 'no service'} beside {record['count']} {record['training'] or 'nothing'}: "
            f"{record['reason']}" for record in results["cells"] if record["status"] == "failed"]


def _percent(share):
    return "-" if share is None else f"{share * 100:+.1f} %"


def _two_digits(share):
    return "-" if share is None else f"{share:.2f}"


def _mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def _median_and_range(values, shown):
    """`median (least to most)`: a mean would hide that one pair is another matter than the rest."""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    return f"{shown(statistics.median(values))} ({shown(min(values))} to {shown(max(values))})"


def _mean_and_error(shares):
    """Of the values of several runs, in per cent."""
    if len(shares) < 2:
        return ""
    return f"({_percent(_mean(shares))[:-2]} ± {statistics.stdev(shares) / len(shares) ** 0.5 * 100:.1f} %)"


# Heading, key of a row, how it is shown. Two baselines: the same service alone in the same mode says what sharing costs, natively alone
# says what a user would have without Tally.
SUMMARY = (("own p99 over alone in the same mode", "own_p99_over_alone_in_mode", _percent),
           ("over natively alone", "own_p99_overhead", _percent),
           ("p99 from arrival over alone in the same mode", "p99_over_alone_in_mode", _percent),
           ("over natively alone", "p99_overhead", _percent),
           ("service's busy share", "busy", _two_digits),
           ("training kept, of solo", "best_effort_share", _two_digits),
           ("of what the service leaves", "share_of_the_rest", _two_digits))


def _summary(rows, load):
    """Each mode over the pairs with one training at the main load: medians, with the range over the pairs."""
    lines = ["| mode | pairs | " + " | ".join(heading for heading, _, _ in SUMMARY) + " |", "|---|---:|" + "---|" * len(SUMMARY)]
    for mode in dict.fromkeys(row["mode"] for row in rows):
        mine = [row for row in rows if row["mode"] == mode and row["training"] and row["count"] == 1 and row["load"] == load]
        if mine:
            cells = [_median_and_range([row.get(key) for row in mine], shown) for _, key, shown in SUMMARY]
            lines.append(f"| {mode} | {len(mine)} | " + " | ".join(cells) + " |")
    return lines


def _pairs(rows):
    lines = ["| service | load | busy | beside | mode | p50 / p90 / p99 / max, ms | p99 over alone: natively | 95 % interval | in the same mode | "
             "own p50 / p99, ms | own p99 over alone: natively | in the same mode | training, of solo (range) | of what is left | "
             "system throughput | requests | runs |", "|---|---:|---:|---|---|---|---:|---|---:|---|---:|---:|---|---:|---:|---:|---:|"]

    def order(row):
        return (row["service"], row["load"], row["training"] != "", row["training"], row["count"])

    for row in sorted(rows, key=order):
        beside = f"{row['count']} x {row['training']}" if row["training"] else "nothing"
        low, high = row.get("p99_overhead_interval", (None, None))
        share = f"{row['best_effort_share']:.3f} ({row['best_effort_range'][0]:.3f} to {row['best_effort_range'][1]:.3f})" \
            if "best_effort_share" in row else "-"
        system = f"{row['system_throughput']:.3f}" if "system_throughput" in row else "-"
        is_base = row["mode"] == "alone"
        remark = f" ({row['unserved']} not served)" if row["unserved"] else ""
        lines.append(f"| {row['service']} | {row['load']:.0%} | {_two_digits(row['busy'])} | {beside} | {row['mode']} | "
                     + " / ".join(f"{row[name]:.3f}" for name in ("p50", "p90", "p99", "max")) + f"{remark} | "
                     + ("-" if is_base else _percent(row["p99_overhead"])) + " | "
                     + ("-" if is_base else f"{_percent(low)} to {_percent(high)}") + f" | {_percent(row.get('p99_over_alone_in_mode'))} | "
                     + f"{row['own_p50']:.3f} / {row['own_p99']:.3f} | "
                     + ("-" if is_base else _percent(row["own_p99_overhead"])) + f" | {_percent(row.get('own_p99_over_alone_in_mode'))}"
                     + f" | {share} | {_two_digits(row.get('share_of_the_rest'))} | {system} | "
                     + f"{row['requests']} | {row['repetitions']} |")
    return lines


def _alone(rows):
    """Services with nothing beside them, in each mode: what the mode itself costs them."""
    mine = [row for row in rows if not row["training"] and row["mode"] != "alone"]
    lines = ["There and back: own time but for that from the first to the last work on the GPU, whose clock changes within seconds.", "",
             "| service | mode | p50 / p99, ms | over native: p50 | p99 | 95 % interval | own p50 / p99, ms | over native: own p50 | own p99 | "
             "there and back, us: p50 / p99 | natively | more, of own p50 (mean of the runs, standard error) | of own p99 |",
             "|---|---|---|---:|---:|---|---|---:|---:|---|---|---|---:|"]
    for row in sorted(mine, key=lambda row: row["service"]):
        low, high = row.get("p99_overhead_interval", (None, None))
        way = (f"{row['way_p50']:.1f} / {row['way_p99']:.1f} | {row['way_p50_alone']:.1f} / {row['way_p99_alone']:.1f} | "
               f"{_percent(row['way_p50_more'])} {_mean_and_error(row['way_p50_more_by_run'])} | {_percent(row['way_p99_more'])}") if "way_p50" in row else "- | - | - | -"
        lines.append(f"| {row['service']} | {row['mode']} | {row['p50']:.3f} / {row['p99']:.3f} | {_percent(row['p50_overhead'])} | "
                     f"{_percent(row['p99_overhead'])} | {_percent(low)} to {_percent(high)} | {row['own_p50']:.3f} / {row['own_p99']:.3f} | "
                     f"{_percent(row['own_p50_overhead'])} | {_percent(row['own_p99_overhead'])} | {way} |")
    return mine and ["", "## Alone under each mode", "", *lines]


def _beside_idle(found):
    """What a mode costs a training that has the GPU to itself."""
    lines = ["", "## Trainings beside an idle service", "",
             "The service is there and has no requests, so nothing is stopped: what is lost is the cost of the mode itself, of its gates for instance.", "",
             "| training | mode | of solo: median | range | runs |", "|---|---|---:|---|---:|"]
    lines += [f"| {training} | {mode} | {statistics.median(shares):.4f} | {min(shares):.4f} to {max(shares):.4f} | {len(shares)} |"
              for training, mode, shares in found]
    return lines if found else []


def _first_kernels(rows):
    """How soon the GPU works for a request."""
    mine = [row for row in rows if row.get("first_kernel")]
    lines = ["", "## From a request to its first kernel", "",
             "From when the service asks for a request until a kernel of its own runs, by the GPU's clock (`stamps.py`), in us. Shares of the requests by how "
             "much longer than alone (its p99) that took, which tells the cause: nothing to wait for, a switch between contexts, a time slice of the driver's, "
             "something that nothing preempts. Behind: it came before the request before it was complete.", "",
             f"| service | load | beside | mode | p50 / p90 / p99 / max | alone: p50 / p99 | as alone | up to {measures.SWITCH_US} us more | "
             f"up to {measures.SLICE_US} us more | longer | p99 after a pause | p99 behind another | clocks' error |",
             "|---|---:|---|---|---|---|" + "---:|" * 7]
    for row in sorted(mine, key=lambda row: (row["service"], row["load"], row["training"], row["count"])):
        found = row["first_kernel"]
        beside = f"{row['count']} x {row['training']}" if row["training"] else "nothing"
        after, behind = ("-" if found[name] is None else f"{found[name]:.1f}" for name in ("p99_after_pause", "p99_behind"))
        lines.append(f"| {row['service']} | {row['load']:.0%} | {beside} | {row['mode']} | "
                     + " / ".join(f"{found[name]:.1f}" for name in ("p50", "p90", "p99", "max"))
                     + f" | {found['p50_alone']:.1f} / {found['p99_alone']:.1f} | " + " | ".join(f"{share:.1%}" for share in found["shares"])
                     + f" | {after} | {behind} | {found['clock_error']:.1f} |")
    return lines if mine else []


def _cost_of_forms(kernels):
    """How much longer launches take in their forms, of the kernels of which both times are known."""
    known = [row for row in kernels if row["original_duration_ns"] and row["duration_ns"]]
    original = sum(row["launches"] * row["original_duration_ns"] for row in known)
    now = sum(row["launches"] * row["duration_ns"] for row in known)
    return f" {now / original - 1:+.2%} over the originals, by launches of {len(known)} kernels whose both times were measured" if known else ""


def _kernels(tallyds):
    """Of the modes with transforms: what best-effort programs spent their time in, and how soon it gives the GPU back."""
    lines = []
    for mode, said in tallyds.items():
        if not modes.rewrites(mode) or not said["kernels"]:
            continue
        whole = sum(row["gpu_time_ns"] for row in said["kernels"]) or 1
        lines += ["", f"{mode}:" + _cost_of_forms(said["kernels"]), "",
                  "| kernel | share of these | launches | us | original, us | form | turnaround, us | remark |", "|---|---:|---:|---:|---:|---|---:|---|"]
        for row in said["kernels"]:
            estimated = "" if row["is_turnaround_measured"] else " (estimated)"
            original = f"{row['original_duration_ns'] / 1e3:.1f}" if row["original_duration_ns"] else "-"
            lines.append(f"| `{row['name'][:60]}` | {row['gpu_time_ns'] / whole:.1%} | {row['launches']} | {row['duration_ns'] / 1e3:.1f} | {original} | "
                         f"{row['form']} | {row['turnaround_ns'] / 1e3:.1f}{estimated} | {row['remark']} |")
    return lines and ["", "## Best-effort kernels by GPU time", *lines]


def markdown(results, rows):
    lines = ["# Co-location: inference services beside trainings", ""]
    if results["smoke"]:
        lines += ["**Smoke run with stand-in programs on the software driver: it shows that the bench runs; its numbers mean nothing.**", ""]
    lines += [f"* {key}: {value}" for key, value in results["machine"].items()]
    lines += [f"* command: `{results['command']}`",
              f"* each cell: {results['seconds']:g} s of requests; latency from arrival to completion, queueing included; traces: `trace.py`, {results['trace']}"]
    wrong = problems(results)
    done = [record for record in results["cells"] if record["status"] == "done"]
    requests = sum(len(record.get("latencies_ms", ())) for record in done)
    lines += ["", f"Outputs of {requests} requests in {len(done)} cells: all as they should be, bit for bit." if not wrong else
              f"Problems in {requests} requests in {len(done)} cells: " + "; ".join(wrong)]
    trainings = {}
    for key, digests in results["digests"].items():
        place, role, name = key.split("|")
        if role == "training":
            trainings.setdefault(name, set()).update(digests)
    if trainings:
        said = [f"{name}: " + ("the same in all modes" if len(found) == 1 else "differs: " + ", ".join(sorted(found)))
                for name, found in trainings.items()]
        lines.append("First loss of the trainings: " + "; ".join(said) + ".")
    said = [f"{mode}: {executor['domain']} {executor['suspension']}, {executor['num_suspensions']} times" +
            (f", stood still {executor['num_standstills']} times" if executor.get("num_standstills") else "")
            for mode, executor in _best_effort_executors(results)]
    if said:
        lines.append("Descheduling of best-effort contexts: " + "; ".join(said) + ".")
    if rows:
        lines += ["", "## Modes", "", "Over the pairs, at the first load, one training: median, and the range over the pairs. All of the same traces. Own: "
                  "without the queue, from when the service turned to the request; the queue of a busy service makes of a small delay a large one. "
                  "Busy: requests served, by what each takes from its first to its last kernel alone in the same mode; an eager service's gaps "
                  "between kernels are in it.", "",
                  *_summary(rows, results["loads"][0]), "", "## Services", "", "| service | requests per second, back to back, natively alone |",
                  "|---|---:|", *(f"| {name} | {value:.1f} |" for name, value in results["capacity"].items()), "",
                  "## Pairs", "", *_pairs([row for row in rows if row["training"] or row["mode"] == "alone"])]
        lines += _alone(rows)
        lines += _first_kernels(rows)
    lines += _beside_idle(measures.Results(results["cells"]).beside_idle())
    lines += _kernels(results["tallyds"])
    not_finite = [name for name, facts in results["workers"].items() if not facts.get("finite", True)]
    if not_finite:
        lines += ["", "Outputs that are not finite (they are compared all the same): " + ", ".join(not_finite)]
    failed = list(dict.fromkeys(failures(results)))
    if failed:
        lines += ["", "## Not measured", "", *(f"* {sentence}" for sentence in failed)]
    return "\n".join(lines) + "\n"


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as text:
        results = json.load(text)
    rows = measures.Results(results["cells"]).rows()
    text = markdown(results, rows)
    if len(sys.argv) == 2:
        print(text)
        return
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)
    if len(sys.argv) == 4:
        write_csv(rows, sys.argv[3])


if __name__ == "__main__":
    main()
