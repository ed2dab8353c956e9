"""The bench's page, and what of it is wrong."""
from machine import quantile


def most_launched(before, after):
    """Of two answers of `tallyctl kernels`: the row of the kernel that was launched most in between; {} if none was."""
    def key(row):
        return (row["name"], row["executor_pid"], tuple(row["grid"]), tuple(row["block"]), row["shared_bytes"])
    launches = {key(row): row["launches"] for row in before}
    new = [(row["launches"] - launches.get(key(row), 0), index) for index, row in enumerate(after)]
    most, index = max(new, default=(0, 0))
    return after[index] if most > 0 else {}


def _digests(row):
    """By way; alone and beside requests the number of launches differs, so the digests do."""
    for group in ("forms", "requests"):
        yield group, {name: run["digest"] for name, run in row[group].items() if "digest" in run}


def problems(rows):
    found = []
    for row in rows:
        for group, digests in _digests(row):
            reference = next(iter(digests.values()), None)
            found += [f"{row['kernel']}: {name}: other results" for name, digest in digests.items() if digest != reference]
        for name, run in [*row["forms"].items(), *row["requests"].items()]:
            if "failed" in run:
                found.append(f"{row['kernel']}: {name}: {run['failed']}")
    return found


def _form_cell(run, base_us):
    if "us" not in run:
        return "failed" if "failed" in run else "-"
    return "refused" if run.get("report", {}).get("form") == "original" else f"{run['us'] / base_us:.3f}"


def _forms_table(rows):
    names = [name for row in rows for name in row["forms"]]
    names = [name for name in dict.fromkeys(names) if name not in ("native", "native again", "original")]
    lines = ["| kernel | native us | again | original | " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) + 3)]
    for row in rows:
        forms = row["forms"]
        base = forms.get("native", forms.get("original", {})).get("us")
        if base is None:
            lines.append(f"| {row['kernel']} |" + " - |" * (len(names) + 3))
            continue
        ratio = [f"{forms[name]['us'] / base:.3f}" if "us" in forms.get(name, {}) else "-" for name in ("native again", "original")]
        cells = [_form_cell(forms.get(name, {}), base) for name in names]
        lines.append(f"| {row['kernel']} | {base:.4g} | " + " | ".join(ratio + cells) + " |")
    return lines


def _latency(samples):
    return " / ".join(f"{quantile(samples, q):.1f}" for q in (0.5, 0.99, 1))


def _cause(figures):
    """Where the time went from the announcement of a request until the persistent blocks had left, on average."""
    number = figures.get("timed_yields", 0)
    if not number:
        return "-"
    parts = (f"{figures[f'yield_{phase}_ns'] / number / 1000:.1f}" for phase in ("seen", "written", "left"))
    return " + ".join(parts) + f" us ({number})"


def _requests_table(rows, alone, threshold_us):
    lines = ["Alone, p50 / p99 / largest in us: " + "; ".join(f"{way}: {_latency(samples)}" for way, samples in alone.items()), "",
             "| kernel | way | p50 / p99 / largest | over | added at p99 | form | takes | turnaround | seen + written + left | remark |",
             "|---|---|---:|---:|---:|---|---:|---:|---|---|"]
    for row in rows:
        for way, run in row["requests"].items():
            if "latencies" not in run:
                lines.append(f"| {row['kernel']} | {way} | failed |" + " |" * 7)
                continue
            usual = quantile(alone[way], 0.5)
            latencies, report = run["latencies"], run["report"]
            over = sum(latency > usual + threshold_us for latency in latencies) / len(latencies)
            added = quantile(latencies, 0.99) - usual
            turnaround = "-"
            if report:
                turnaround = f"{report['turnaround_ns'] / 1000:.1f}" + ("" if report["is_turnaround_measured"] else "~")
            cells = [row["kernel"], way, _latency(latencies), f"{over:.1%}", f"{added:.1f}" + ("" if added <= threshold_us else " **over**"),
                     report.get("form", "-"), f"{run['us'] / row['us']:.2f}" if row.get("us") else "-", turnaround,
                     _cause(run["figures"]), report.get("remark", "")]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def markdown(facts, rows, alone, options):
    rows = list(rows)
    lines = ["# Kernels that give the GPU back: what it costs, how soon", ""]
    if options.smoke:
        lines += ["**Smoke run: it shows that the bench runs; its numbers mean nothing.**", ""]
    lines += [f"* {key}: {value}" for key, value in facts.items()] + [f"* turnaround threshold: {options.threshold_us:g} us"]
    wrong = problems(rows)
    compared = sum(len(digests) for row in rows for _, digests in _digests(row))
    lines += ["", f"Results of {compared} runs compared: " + ("all as they should be, bit for bit." if not wrong else "; ".join(wrong))]
    if any(row["forms"] for row in rows):
        lines += ["", "## Time per launch in each form", "",
                  "Median of batches, the GPU to itself; all but the first column relative to it. `original`: under tally-run with "
                  "variants on, the kernel as it is. `refused`: the passes leave the kernel alone.", "", *_forms_table(rows)]
    if alone:
        lines += ["", "## A high-priority request beside each kernel", "",
                  "From its arrival until its (tiny) kernel runs, in us. `native`: both programs without Tally. `as-they-are`: under "
                  "tally-run, kernels untouched. `chosen`: with the forms that Tally chose; `slices`, `workers`: of these only. `over`: "
                  "share of requests that took longer than the median alone and the threshold; `added at p99`: over the median alone. "
                  "`takes`: the best-effort kernel's time per launch beside the requests, relative to native alone. `turnaround`: as "
                  "the executor knows it (~: estimated). Then, for persistent blocks, where that time goes on average: until the announcement of "
                  "high-priority work was seen, until the flag was written, until the persistent blocks had left (how often it was timed).", "", *_requests_table(rows, alone, options.threshold_us)]
    return "\n".join(lines) + "\n"
