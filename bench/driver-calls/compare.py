#!/usr/bin/env python3
"""Prints results of driver_calls as a Markdown table.

usage: compare.py TALLY.json [NATIVE.json]

The ratio is tally over native for times (smaller is better) and for bandwidths (larger is better) alike.
"""
import json
import platform
import sys


def load(path):
    with open(path, encoding="utf-8") as text:
        return json.load(text)


def cell(row):
    return f"{row['median']:.3g} ({row['p10']:.3g}, {row['p90']:.3g}, {row['p99']:.3g})" if row else "-"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    tally = load(sys.argv[1])
    native = load(sys.argv[2]) if len(sys.argv) == 3 else {"rows": []}
    native_rows = {row["name"]: row for row in native["rows"]}
    print(f"Device: {tally['device']}; {platform.processor() or platform.machine()}, Linux {platform.release()}.")
    if tally["smoke"]:
        print("Smoke run: these numbers mean nothing.")
    print("Median (p10, p90, p99) over batches.\n")
    print("| what | unit | native | tally-run | ratio |\n|---|---|---|---|---:|")
    for row in tally["rows"]:
        other = native_rows.get(row["name"])
        ratio = f"{row['median'] / other['median']:.2f}" if other and other["median"] > 0 else "-"
        print(f"| {row['name']} | {row['unit']} | {cell(other)} | {cell(row)} | {ratio} |")


if __name__ == "__main__":
    main()
