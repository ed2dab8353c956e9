"""docs/results/mutants.md and mutants.csv: how many mutants the tests notice, by room."""
import csv
import datetime
import hashlib
import os

import source_tree

CSV = "docs/results/mutants.csv"
PAGE = "docs/results/mutants.md"
COLUMNS = ("outcome", "by", "seconds", "commit", "text", "first")  # first: before somebody wrote a test for it
KILLED = ("killed", "timeout")


def digest(mutant):
    return hashlib.sha256(mutant.text.encode()).hexdigest()[:12]


def current(mutants, results):
    """Results of mutants that are still written so."""
    return {m.id: results[m.id] for m in mutants if m.id in results and results[m.id]["text"] == digest(m)}


def read_csv(root):
    path = os.path.join(root, CSV)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8", newline="") as table:
        return {row["mutant"]: {c: int(row[c]) if c == "seconds" else row[c] for c in COLUMNS}
                for row in csv.DictReader(table)}


def write_csv(root, mutants, results):
    with open(os.path.join(root, CSV), "w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("mutant", *COLUMNS))
        for mutant in mutants:
            if mutant.id in results:
                writer.writerow((mutant.id, *(results[mutant.id][c] for c in COLUMNS)))


def lines_of_code(root):
    return {path: source_tree.read(root, path).count("\n")
            for path in source_tree.list_files(root, (".h", ".cc")) if path.split("/")[0] in source_tree.ROOMS}


def percent(part, whole):
    """Rounded down: not all is not 100."""
    return f"{100 * part // whole} %" if whole else "-"


def row(name, lines, outcomes):
    run = [o for o in outcomes if o]
    killed = sum(o in KILLED for o in run)
    hung = sum(o == "timeout" for o in run)
    return (f"| {name} | {lines:,} | {len(outcomes)} | {len(run)} | {killed}{f' ({hung} by time)' if hung else ''} | "
            f"{len(run) - killed} | {percent(killed, len(run))} |")


def wrapped(text, indent=0):
    lines, line = [], ""
    for word in text.replace(" %", "\N{NO-BREAK SPACE}%").split(" "):
        if line and len(line) + 1 + len(word) > 118 - indent:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return ("\n" + " " * indent).join([*lines, line]).replace("\N{NO-BREAK SPACE}", " ")


def page(root, mutants, results, commit):
    code = lines_of_code(root)
    rooms = list(dict.fromkeys(m.room for m in mutants))

    def lines_in(room):
        # What a longer room's name covers is that room's.
        return sum(lines for path, lines in code.items()
                   if path.startswith(room + "/") and not any(o != room and o.startswith(room + "/") and
                                                              path.startswith(o + "/") for o in rooms))

    def outcomes(chosen):
        return [results.get(m.id, {}).get("outcome", "") for m in chosen]

    run = [m for m in mutants if m.id in results]
    killed = sum(o in KILLED for o in outcomes(run))
    seconds = sum(results[m.id]["seconds"] for m in run)
    at_first = sum(results[m.id]["first"] in KILLED for m in run)
    commits = ", ".join(sorted({results[m.id]["commit"] for m in run}))
    num_waiting = len(mutants) - len(run)
    waiting = f"The list has {len(mutants)}; {num_waiting} of them have not been run yet. " if num_waiting else ""
    text = ["# Do the tests notice mistakes?",
            wrapped(f"**{killed} of {len(run)} planted mistakes were noticed ({percent(killed, len(run))}).** "
                    f"When first run {at_first} were ({percent(at_first, len(run))}); tests were written since. "
                    f"{waiting}The aim is 90 %. "
                    f"{datetime.date.today().isoformat()}, commit {commit}, {os.cpu_count()} processors; "
                    f"{seconds / 60:.0f} minutes with other builds beside it."),
            "", "    tools/mutants", "",
            wrapped("A *mutant* is the product with one small mistake that somebody could make. "
                    "[The lists](../../tests/mutants/README.md) have them by room, none equivalent to the original. "
                    "A mutant is *killed* when a test fails because of it. What each was killed by: "
                    "[mutants.csv](mutants.csv)."),
            "", wrapped(f"Run on: {commits}.") if commits else "", "",
            "| room | lines | mutants | run | killed | survived | of those run |",
            "|---|---:|---:|---:|---:|---:|---:|"]
    text += [row(room, lines_in(room), outcomes([m for m in mutants if m.room == room])) for room in rooms]
    text += [row("**all**", sum(map(lines_in, rooms)), outcomes(mutants)), "", "## Survivors"]
    survivors = [m for m in run if results[m.id]["outcome"] == "survived"]
    for mutant in survivors:
        text.append("* " + wrapped(f"`{mutant.id}` ({mutant.path}): {mutant.survives or 'a test is missing.'}", 2))
    text += ["None."] if not survivors else []
    unexplained = [m for m in run if results[m.id]["outcome"] == "broken"]
    for mutant in unexplained:
        text.append("* " + wrapped(f"`{mutant.id}` is broken: {results[mutant.id]['by']}", 2))
    return "\n".join(text) + "\n"


def write(root, mutants, results, commit):
    write_csv(root, mutants, results)
    with open(os.path.join(root, PAGE), "w", encoding="utf-8") as file:
        file.write(page(root, mutants, results, commit))
    print(f"wrote {PAGE} and {CSV}: {len(results)} of {len(mutants)} mutants have a result")
