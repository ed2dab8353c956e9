#!/usr/bin/env python3
"""The bursts of company.py over time: bursts_plot.py COMPANY.json FILE.svg [--csv FILE.csv]. Needs matplotlib (Debian: python3-matplotlib).

From above: the offered load; p99 from arrival of each second, in each room and natively alone; the training's speed; how the
default decided about the gaps between requests in which the training could have had the GPU.
"""
import argparse
import csv
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import company  # pylint: disable=wrong-import-position

DECIDED = {"gaps_hit": "held until the request", "gaps_late": "held, not so long", "gaps_by_rule": "not held: would not pay",
           "gaps_by_guard": "not held: requests no shorter"}


def rows_of(room, found):
    """A row for each second, to be written; empty: no requests, or nobody said anything of gaps."""
    def rounded(value, digits):
        return "" if value is None else round(value, digits)

    for second, row in enumerate(company.by_second(found)):
        gaps = row.get("gaps", {})
        yield {"room": room, "second": second, "offered": rounded(row["offered"], 4), "p99_alone_ms": rounded(row["alone"], 3),
               "p99_beside_ms": rounded(row["beside"], 3), "steps_per_second": rounded(row["training"], 3),
               **{name: gaps.get(name, "") for name in company.GAPS}, "held_ms": rounded(gaps["gap_hold_ns"] / 1e6, 1) if gaps else ""}


def write_csv(results, path):
    rows = [row for room, found in results["parts"]["bursts"].items() for row in rows_of(room, found)]
    with open(path, "w", encoding="utf-8", newline="") as text:
        table = csv.DictWriter(text, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def draw(results, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True, "svg.hashsalt": "tally", "svg.fonttype": "none"})
    rooms = {name: company.by_second(found) for name, found in results["parts"]["bursts"].items()}
    told = next((rows for rows in rooms.values() if any(row.get("gaps") for row in rows)), None)
    figure, axes = pyplot.subplots(4 if told else 3, 1, figsize=(8, 8 if told else 6), sharex=True)
    first = next(iter(rooms.values()))
    middles = [second + 0.5 for second in range(len(first))]
    axes[0].bar(middles, [row["offered"] * 100 for row in first], 0.95, color="lightgrey")
    axes[0].set_ylabel("offered load, %")
    axes[0].set_title(f"{results['service']} beside {results['training']}: a load that changes each second")
    axes[1].plot(middles, [row["alone"] for row in first], lw=1.2, color="black", label="natively alone")
    for name, rows in rooms.items():
        axes[1].plot(middles, [row["beside"] for row in rows], lw=1.2, label=name)
        axes[2].plot(middles, [row["training"] for row in rows], lw=1.2, label=name)
    axes[1].set_yscale("log")
    axes[1].set_ylabel("p99 from arrival, ms")
    axes[1].legend(fontsize=7)
    axes[2].set_ylabel("training, steps a second")
    axes[2].set_ylim(bottom=0)
    axes[2].legend(fontsize=7)
    if told:
        below = [0] * len(told)
        for key, label in DECIDED.items():
            counts = [row.get("gaps", {}).get(key, 0) for row in told]
            axes[3].bar(middles, counts, 0.95, bottom=below, label=label)
            below = [a + b for a, b in zip(below, counts)]
        axes[3].set_ylabel("gaps, a second")
        axes[3].legend(fontsize=7)
    axes[-1].set_xlabel("seconds")
    machine = results["machine"]
    note = "SMOKE RUN, NO MEASUREMENT" if results["smoke"] else f"{machine['GPU']}; {machine['what']}; {machine['when']}"
    figure.text(0.005, 0.005, note, fontsize=6, color="grey")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    pyplot.close(figure)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results")
    options.add_argument("path")
    options.add_argument("--csv", help="and the same as numbers, into this file")
    chosen = options.parse_args()
    with open(chosen.results, encoding="utf-8") as text:
        results = json.load(text)
    if not results["parts"].get("bursts"):
        sys.exit("bursts_plot.py: company.py has measured no bursts there")
    if chosen.csv:
        write_csv(results, chosen.csv)
    try:
        draw(results, chosen.path)
    except ImportError as error:
        sys.exit(f"bursts_plot.py: {error}; Debian's package is python3-matplotlib")


if __name__ == "__main__":
    main()
