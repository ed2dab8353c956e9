"""What nets.py says of what it measured: a page, a line for those who watch, CSV, a picture; and what is wrong with it."""
import csv
import dataclasses

import bars
from machine import quantile


@dataclasses.dataclass
class Cell:
    """One case, one way; `samples` are microseconds per step of its repetitions."""
    program: str
    case: str
    way: str
    samples: list = dataclasses.field(default_factory=list)
    digest: str = ""
    failure: str = ""
    window: dict = dataclasses.field(default_factory=dict)  # of tallyctl, what the measured repetitions added

    def at(self, q):
        return quantile(self.samples, q) if self.samples else None


def line_of(cell):
    """For those who watch."""
    if cell.failure:
        return f"{cell.program}, {cell.case}, {cell.way}: FAILED: {cell.failure}"
    text = f"{cell.program}, {cell.case}, {cell.way}: {time_of(cell)} us, bits {cell.digest}"
    return text + (f", {seen(cell.window)}" if cell.window else "")


def time_of(cell):
    return f"{cell.at(0.5):.4g} ({cell.at(0.1):.4g}-{cell.at(0.9):.4g})" if cell.samples else "failed"


def seen(window):
    """What its window saw of the launches, in one line."""
    launches = sum(window["classes"].values()) + sum(window["barriers"].values())
    if launches == 0:
        return "no launches one by one"
    parts = [f"{launches} launches"]
    parts += [f"{name} {100 * count / launches:.0f} %" for name, count in (window["classes"] | window["barriers"]).items()]
    parts += [f"{key.replace('_', ' ')} {100 * window[key] / launches:.0f} %" for key in ("held", "in_graphs") if window[key]]
    parts.append(f"side by side {window['work'] / max(window['chain'], 1):.2f}")
    batches = sum(window["batches"].values())
    if batches:
        parts.append("batches " + ", ".join(f"{name} {100 * count / batches:.0f} %" for name, count in window["batches"].items()))
    return ", ".join(parts)


def table(cells):
    """{(program, case): {way: cell}} in the order in which they were measured."""
    rows = {}
    for cell in cells:
        rows.setdefault((cell.program, cell.case), {})[cell.way] = cell
    return rows


def problems(cells):
    wrong = [f"{cell.program}, {cell.case}, {cell.way}: {cell.failure}" for cell in cells if cell.failure]
    for (program, case), row in table(cells).items():
        digests = {cell.digest for cell in row.values() if cell.digest}
        if len(digests) > 1:
            wrong.append(f"{program}, {case}: DIFFERENT BITS: " + ", ".join(f"{name} {cell.digest}" for name, cell in row.items()))
    return wrong


def ratio(row, way, base):
    """How many times as fast as the other way; None if one is missing."""
    pair = [row[name].at(0.5) if name in row else None for name in (base, way)]
    return pair[0] / pair[1] if all(pair) else None


def markdown(facts, cells, tenants, smoke):
    """`tenants`: by case and way what one program and several together get done, in steps a second."""
    lines = ["# Nets and simulations of small kernels", ""]
    if smoke:
        lines += ["**Smoke run: it shows that the bench runs; its numbers mean nothing.**", ""]
    lines += [f"* {key}: {value}" for key, value in facts.items()]
    wrong = problems(cells)
    names = list(dict.fromkeys(cell.way for cell in cells))
    lines += ["", "Results: " + ("; ".join(wrong) if wrong else "of each case the same bits in all ways."), "",
              "Microseconds per step, p50 (p10-p90) of repetitions; how many times as fast the window is.", "",
              "| program | case | " + " | ".join(names) + " | over native | over Tally without |",
              "|---|---|" + "---:|" * (len(names) + 2)]
    for (program, case), row in table(cells).items():
        gains = [ratio(row, "window", base) for base in ("native", "tally")]
        lines.append("| " + " | ".join([program, case] + [time_of(row[name]) if name in row else "-" for name in names]
                                       + [f"{gain:.2f}" if gain else "-" for gain in gains]) + " |")
    lines += ["", "What the windows saw:", ""]
    lines += [f"* {cell.program}, {cell.case}, {cell.way}: {seen(cell.window)}" for cell in cells if cell.window]
    if tenants:
        lines += ["", "Programs together (NVRTC), steps a second:", "", "| case | way | one | together | times one |", "|---|---|---:|---:|---:|"]
        lines += [f"| {case} | {way} | {one:.0f} | {all_of_them:.0f} | {all_of_them / one:.2f} |"
                  for case, row in tenants.items() for way, (one, all_of_them) in row.items()]
    return "\n".join(lines) + "\n"


def write_csv(path, cells):
    with open(path, "w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["program", "case", "way", "p10_us", "p50_us", "p90_us", "repetitions", "bits", "launches", "known", "held",
                         "in_graphs", "side_by_side", "barriers"])
        for cell in cells:
            times = [f"{cell.at(q):.2f}" if cell.samples else "" for q in (0.1, 0.5, 0.9)]
            said = cell.window
            counts = [""] * 6
            if said:
                known, barriers = sum(said["classes"].values()), sum(said["barriers"].values())
                counts = [known + barriers, known, said["held"], said["in_graphs"], f"{said['work'] / max(said['chain'], 1):.2f}",
                          " ".join(f"{name}:{count}" for name, count in said["barriers"].items())]
            writer.writerow([cell.program, cell.case, cell.way, *times, len(cell.samples), cell.digest or "failed", *counts])


def plot(cells, path):
    rows = {key: row for key, row in table(cells).items() if row.get("native") and row["native"].samples}
    names = [name for name in dict.fromkeys(cell.way for cell in cells) if name != "native"]
    heights = {name: [ratio(row, name, "native") or 0 for row in rows.values()] for name in names}
    bars.draw(path, [f"{program}: {case}" for program, case in rows], heights, "times as fast as native", is_sideways=True)
