"""The bench's Markdown page and its JSON."""
import dataclasses

import machine
from budgets import budget_of
from machine import quantile


def describe_machine(root, readiness, priority, before=None):
    facts = machine.describe(root, ("torch", "torchvision", "transformers"))
    if before:
        facts["before"] = machine.version_of(before)
    facts["tallyd"] = readiness
    facts["class of the programs"] = priority or "best-effort (tally-run's default)"
    return facts


@dataclasses.dataclass
class Judged:
    """A row with its medians and its verdict: "within", "missed", "-" (no budget, or nothing to compare with)."""
    row: object
    native: float | None
    tally: float | None
    budget: str
    verdict: str

    @property
    def ratio(self):
        return self.tally / self.native if self.native and self.tally is not None else None

    @property
    def over_before(self):
        before = quantile(self.row.before, 0.5) if self.row.before else None
        return self.tally / before if before and self.tally is not None else None


def judge(row):
    native = quantile(row.native, 0.5) if row.native else None
    tally = quantile(row.tally, 0.5) if row.tally else None
    budget = budget_of(row.name)
    is_bandwidth = row.unit == "GB/s"
    if budget is None:
        return Judged(row, native, tally, "", "-")
    if tally is None:
        return Judged(row, native, tally, budget.sentence(is_bandwidth), "not measured")
    allowed = budget.allows(tally, native, is_bandwidth)
    verdict = "-" if allowed is None else "within" if allowed else "missed"
    return Judged(row, native, tally, budget.sentence(is_bandwidth), verdict)


def _cell(samples):
    if not samples:
        return "-"
    return f"{quantile(samples, 0.5):.4g} ({quantile(samples, 0.1):.4g} to {quantile(samples, 0.9):.4g})"


def _before_cells(item):
    ratio = f"{item.over_before:.3f}" if item.over_before else "-"
    return f" {_cell(item.row.before)} | {ratio} |"


def markdown(facts, sections, profiles, smoke):
    lines = ["# Native and under tally-run, side by side", ""]
    if smoke:
        lines += ["**Smoke run: it shows that the bench runs; its numbers mean nothing.**", ""]
    lines += [f"* {key}: {value}" for key, value in facts.items()]
    judged = [row for _, rows in sections for row in rows]
    counts = {verdict: sum(row.verdict == verdict for row in judged) for verdict in ("within", "missed", "not measured")}
    lines += ["", "Median (p10 to p90) of all samples; native and tally-run by turns in one run. The ratio is tally-run over "
              "native: for times smaller is better, for GB/s larger.", "",
              f"**Budgets: {counts['within']} within, {counts['missed']} missed, {counts['not measured']} not measured.**"]
    has_before = "before" in facts
    for title, rows in sections:
        lines += ["", f"## {title}", "", "| what | unit | native | tally-run | ratio | budget | verdict |"
                  + (" before | over before |" if has_before else ""),
                  "|---|---|---:|---:|---:|---|---|" + ("---:|---:|" if has_before else "")]
        for item in rows:
            ratio = f"{item.ratio:.3f}" if item.ratio else "-"
            verdict = "**missed**" if item.verdict == "missed" else item.verdict
            lines.append(f"| {item.row.name} | {item.row.unit} | {_cell(item.row.native)} | {_cell(item.row.tally)} | {ratio} "
                         f"| {item.budget} | {verdict} |" + (_before_cells(item) if has_before else ""))
        lines += [""] + [f"* {item.row.name}: {item.row.note}" for item in rows if item.row.note]
    if profiles:
        lines += ["", "## Profiles of what missed its budget", "",
                  "The row's program again under tally-run: processor time per thread (percent of a core) and how often "
                  "it went to sleep. A thread at 100 % with no sleeps is the bottleneck or spins."]
    for name, uses in profiles.items():
        lines += ["", f"### {name}", "", "| process | thread | CPU % | sleeps/s |", "|---|---|---:|---:|"]
        lines += [f"| {use.process} | {use.thread} | {use.cpu_percent:.1f} | {use.switches_per_second:.0f} |" for use in uses]
    return "\n".join(lines) + "\n"


def as_json(facts, sections, profiles, smoke):
    return {
        "machine": facts,
        "smoke": smoke,
        "rows": [{"section": title, "name": item.row.name, "unit": item.row.unit, "budget": item.budget,
                  "verdict": item.verdict, "ratio": item.ratio, "note": item.row.note,
                  **{way: {"median": quantile(samples, 0.5), "p10": quantile(samples, 0.1), "p90": quantile(samples, 0.9),
                           "p99": quantile(samples, 0.99), "samples": len(samples)} if samples else None
                     for way, samples in (("native", item.row.native), ("tally", item.row.tally),
                                          ("before", item.row.before)) if way != "before" or samples}}
                 for title, rows in sections for item in rows],
        "profiles": {name: [dataclasses.asdict(use) for use in uses] for name, uses in profiles.items()},
    }
