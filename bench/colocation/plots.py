#!/usr/bin/env python3
"""Plots of a colocation.json: plots.py FILE.json FOLDER [--format svg|png]. Needs matplotlib (Debian: python3-matplotlib).

    pairs        p99 over alone, and system throughput, for each pair and mode         (the Tally paper's Fig. 4)
    loads        p99 over alone, and the trainings' share, by load                     (Fig. 5a)
    first-kernel time from a request to its first kernel, as a distribution: what share of the requests waits longer
    trace        offered load, latency and the service's queue over one trace          (Fig. 5b)
    tenants      p99 and the trainings' share by their number                          (Fig. 6a)
    ablation     p99 and share with each policy of tallyd, with and without transforms (Fig. 6b)
    thresholds   p99 and share by turnaround threshold                                 (Fig. 6c)
A plot of which nothing was measured is not made.
"""
import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
import measures
import modes
from machine import quantile
# pylint: enable=wrong-import-position


class Plots:
    OWN = "\nhollow: without the queue"

    def __init__(self, results, folder, suffix):
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
        self.pyplot = pyplot
        pyplot.rcParams.update({"figure.dpi": 110, "font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
                                "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "tally"})
        self.results, self.folder, self.suffix = results, folder, suffix
        self.measured = measures.Results(results["cells"])
        self.rows = [row for row in self.measured.rows() if row["training"]]
        self.load = results["loads"][0]
        names = list(dict.fromkeys(row["mode"] for row in self.rows))
        self.colours = {name: pyplot.get_cmap("tab10")(index % 10) for index, name in enumerate(names)}
        self.made = []

    def save(self, figure, name):
        machine = self.results["machine"]
        note = "SMOKE RUN, NO MEASUREMENT" if self.results["smoke"] else f"{machine['GPU']}; {machine['what']}; {machine['when']}"
        figure.text(0.005, 0.005, note, fontsize=6, color="grey")
        figure.tight_layout(rect=(0, 0.02, 1, 1))
        path = os.path.join(self.folder, f"{name}.{self.suffix}")
        figure.savefig(path, metadata={"Date": None} if self.suffix == "svg" else None)
        self.pyplot.close(figure)
        self.made.append(path)

    @staticmethod
    def legend(axes):
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)

    def label_overhead(self, axes, title):
        """Axes on which the p99 over alone was drawn."""
        axes.set_ylabel("p99 over alone, %")
        axes.set_yscale("symlog", linthresh=10)
        self.legend(axes)
        axes.set_title(title)

    @staticmethod
    def overhead_with_bars(row):
        """p99 over alone and how far its interval reaches down and up, in per cent."""
        low, high = row["p99_overhead_interval"]
        value = row["p99_overhead"]
        return value * 100, max(0, value - low) * 100, max(0, high - value) * 100

    def two_axes(self, width=9.0):
        return self.pyplot.subplots(2, 1, figsize=(width, 6), sharex=True)

    def bars(self, name, rows, categories, category_of, title):
        """p99 overhead above, throughput below; a group of bars for each category, a bar for each mode."""
        figure, (above, below) = self.two_axes(max(7.0, 1.6 * len(categories) + 3))
        names = list(dict.fromkeys(row["mode"] for row in rows))
        width = 0.8 / len(names)
        for index, mode in enumerate(names):
            mine = {category_of(row): row for row in rows if row["mode"] == mode}
            places = [place + (index - (len(names) - 1) / 2) * width for place, category in enumerate(categories) if category in mine]
            found = [mine[category] for category in categories if category in mine]
            heights, down, up = zip(*map(self.overhead_with_bars, found))
            above.bar(places, heights, width, yerr=(down, up), color=self.colours[mode], label=mode, error_kw={"lw": 0.8})
            below.bar(places, [row.get("system_throughput", 0) for row in found], width, color=self.colours[mode])
        self.label_overhead(above, title)
        above.axhline(5, color="black", lw=0.8, ls=":")
        below.set_ylabel("system throughput")
        below.set_xticks(range(len(categories)))
        below.set_xticklabels([str(category) for category in categories], fontsize=8)
        self.save(figure, name)

    @staticmethod
    def own(axes, places, rows, colour="black"):
        """p99 without the queue, which makes of a small delay a large one."""
        axes.plot(places, [row["own_p99_overhead"] * 100 for row in rows], "D", ms=4, mfc="white", color=colour, zorder=3)

    def lines(self, name, rows, x_of, title, label, mode_of=lambda row: row["mode"], x_scale="linear"):
        """The same two axes over a number."""
        figure, (above, below) = self.two_axes(7.0)
        for mode in dict.fromkeys(map(mode_of, rows)):
            mine = sorted((row for row in rows if mode_of(row) == mode), key=x_of)
            heights, down, up = zip(*map(self.overhead_with_bars, mine))
            colour = self.colours.get(mode)
            places = list(map(x_of, mine))
            above.errorbar(places, heights, (down, up), marker="o", ms=3, lw=1, color=colour, label=mode)
            self.own(above, places, mine, colour or "black")
            below.plot(places, [row.get("best_effort_share", 0) for row in mine], marker="o", ms=3, lw=1, color=colour)
        self.label_overhead(above, title + self.OWN)
        above.axhline(0, color="black", lw=0.8)
        below.set_ylabel("trainings, of solo")
        below.set_ylim(0, 1.1 * max(row.get("best_effort_share", 0) for row in rows) or 1)
        below.set_xscale(x_scale)
        below.set_xlabel(label)
        self.save(figure, name)

    def pairs(self):
        rows = [row for row in self.rows if row["load"] == self.load and row["count"] == 1]
        if rows:
            categories = list(dict.fromkeys(f"{row['service']}\n{row['training']}" for row in rows))
            self.bars("pairs", rows, categories, lambda row: f"{row['service']}\n{row['training']}", f"Pairs at {self.load:.0%} load")

    def _by_pair(self, name, rows, x_of, title, label):
        for service, training in dict.fromkeys((row["service"], row["training"]) for row in rows):
            mine = [row for row in rows if (row["service"], row["training"]) == (service, training)]
            if len({x_of(row) for row in mine}) > 1:
                self.lines(f"{name}-{service}-{training}", mine, x_of, f"{service} beside {title(training)}", label)

    def loads(self):
        self._by_pair("loads", [row for row in self.rows if row["count"] == 1], lambda row: row["load"] * 100,
                      lambda training: training, "load, % of the service's capacity")

    def tenants(self):
        self._by_pair("tenants", [row for row in self.rows if row["load"] == self.load], lambda row: row["count"],
                      lambda training: f"1 to N {training}", "trainings")

    def thresholds(self):
        def parts(row):
            return modes.TALLY.match(row["mode"])
        rows = [row for row in self.rows if parts(row) and parts(row)["threshold"] and row["load"] == self.load and row["count"] == 1]
        if len({parts(row)["threshold"] for row in rows}) > 1:
            self.lines("thresholds", rows, lambda row: float(parts(row)["threshold"]), "Turnaround threshold", "us", x_scale="log",
                       mode_of=lambda row: f"{re.sub('@.*', '', row['mode'])}: {row['service']}, {row['training']}")

    def ablation(self):
        rows = [row for row in self.rows if modes.TALLY.match(row["mode"]) and "@" not in row["mode"] and row["load"] == self.load
                and row["count"] == 1]
        names = list(dict.fromkeys(row["mode"] for row in rows))
        if len(names) < 2:
            return
        figure, (above, below) = self.two_axes(max(6.0, 1.3 * len(names) + 2))
        pairs = list(dict.fromkeys((row["service"], row["training"]) for row in rows))
        width = 0.8 / len(pairs)
        for index, pair in enumerate(pairs):
            mine = [row for row in rows if (row["service"], row["training"]) == pair]
            places = [names.index(row["mode"]) + (index - (len(pairs) - 1) / 2) * width for row in mine]
            heights, down, up = zip(*map(self.overhead_with_bars, mine))
            above.bar(places, heights, width, yerr=(down, up), label=" beside ".join(pair), error_kw={"lw": 0.8})
            self.own(above, places, mine)
            below.bar(places, [row.get("best_effort_share", 0) for row in mine], width)
        self.label_overhead(above, "Ablation: what schedules" + self.OWN)
        below.set_ylabel("trainings, of solo")
        below.set_xticks(range(len(names)))
        below.set_xticklabels([name.replace("+", "\n+") for name in names], fontsize=8)
        self.save(figure, "ablation")

    def first_kernel(self):
        """Of each pair at the main load. Of all requests of a mode, and of the service alone."""
        for service, training in dict.fromkeys((row["service"], row["training"]) for row in self.rows):
            records = [record for record in self.measured.find(service=service, load=self.load, count=1, training=training)
                       + self.measured.find(mode="alone", service=service, load=self.load, training="") if "waits_us" in record]
            by_mode = {}
            for record in records:
                by_mode.setdefault(record["mode"], []).extend(record["waits_us"])
            if len(by_mode) < 2:
                continue
            figure, axes = self.pyplot.subplots(figsize=(7, 4))
            for mode, waits in by_mode.items():
                ordered = sorted(max(wait, 0.1) for wait in waits)
                # Of thousands of steps those that can be seen.
                places = sorted({min(len(ordered) - 1, int(len(ordered) * (1 - 10 ** (-index / 60)))) for index in range(300)} | {len(ordered) - 1})
                axes.plot([ordered[place] for place in places], [(len(ordered) - place) / len(ordered) for place in places], lw=1.2, label=mode,
                          color="black" if mode == "alone" else self.colours[mode])
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("from a request to its first kernel, us")
            axes.set_ylabel("share of requests that wait longer")
            axes.set_title(f"{service} beside {training}")
            self.legend(axes)
            self.save(figure, f"first-kernel-{service}-{training}")

    def trace(self):
        """One repetition of the first pair: every mode on the same requests. p99 of each twelfth of it."""
        records = [record for record in self.measured.find(load=self.load, count=1) if record["service"] and record["training"]]
        if not records:
            return
        first = records[0]
        records = [record for record in records if all(record[key] == first[key] for key in ("service", "training", "repetition"))]
        records += self.measured.find(mode="alone", service=first["service"], load=self.load, repetition=first["repetition"], training="")[:1]
        arrivals = measures.trace_of(first)
        bin_s = first["seconds"] / 12
        figure, (above, below) = self.two_axes(8.0)
        middles = [(index + 0.5) * bin_s for index in range(12)]
        binned = [min(11, int(arrival / bin_s)) for arrival in arrivals]
        above.bar(middles, [binned.count(index) / bin_s / first["capacity"] * 100 for index in range(12)], bin_s * 0.95, color="lightgrey")
        above.set_ylabel("offered load, %")
        above.set_title(f"{first['service']} beside {first['training']}: one trace")
        for record in records:
            by_bin = {}
            for index, latency in zip(binned, record["latencies_ms"]):
                by_bin.setdefault(index, []).append(latency)
            below.plot([middles[index] for index in sorted(by_bin)], [quantile(by_bin[index], 0.99) for index in sorted(by_bin)], lw=1.2,
                       label=record["mode"], color="black" if record["mode"] == "alone" else self.colours[record["mode"]])
        below.set_ylabel("p99, ms")
        below.set_yscale("log")
        below.set_xlabel("seconds")
        self.legend(below)
        self.save(figure, "trace")

    def all(self):
        os.makedirs(self.folder, exist_ok=True)
        for plot in (self.pairs, self.loads, self.first_kernel, self.trace, self.tenants, self.ablation, self.thresholds):
            plot()
        return self.made


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results")
    options.add_argument("folder")
    options.add_argument("--format", default="svg", choices=["svg", "png"])
    chosen = options.parse_args()
    with open(chosen.results, encoding="utf-8") as text:
        results = json.load(text)
    try:
        made = Plots(results, chosen.folder, chosen.format).all()
    except ImportError as error:
        sys.exit(f"plots.py: {error}; Debian's package is python3-matplotlib")
    print("\n".join(made) if made else "plots.py: nothing was measured")


if __name__ == "__main__":
    main()
