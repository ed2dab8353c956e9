#!/usr/bin/env python3
"""Where the time of a graph on several GPUs went: reads what `tallyctl graph ID --dot` has printed while its program ran.

  tallyctl graph 7.1 --dot | python3 plan_times.py
  python3 plan_times.py plan.dot

Four tables, of the last launch, in milliseconds by the executor's clock: how busy each GPU was, what each kind of task took and
was expected to take, how quick moves were, and what the end waited for: the way back from the last step, each time to the step
that ended last of those that had to be waited for."""
import argparse
import collections
import re
import statistics
import sys

CLUSTER = re.compile(r'^    label="GPU (\d+)')
STEP = re.compile(r'^    s(\d+) \[label="(.*)\\nplanned ([\d.]+) to ([\d.]+) ms(?:\\nran ([\d.]+) to ([\d.]+) ms)?"\];$')
EDGE = re.compile(r"^  s(\d+) -> s(\d+);$")
MOVE = re.compile(r"^(\d+) bytes from GPU (\d+)$")
TASK = re.compile(r"^task \d+(?:: (.*))?, (\d+) nodes?$")


class Step:
    """One line of the picture. `name`: of a task, with how many nodes it has; `num_bytes`: of a move."""

    def __init__(self, gpu, found):
        self.gpu, self.what = gpu, found[2]
        self.planned = (float(found[3]), float(found[4]))
        self.ran = (float(found[5]), float(found[6])) if found[5] else None
        self.before = []
        move, task = MOVE.match(self.what), TASK.match(self.what)
        self.num_bytes = int(move[1]) if move else None
        self.name = f"{task[1] or 'a task'} ({task[2]})" if task else None

    def took(self):
        return self.ran[1] - self.ran[0]


def read(lines):
    steps, gpu = {}, None
    for line in lines:
        cluster, step, edge = CLUSTER.match(line), STEP.match(line), EDGE.match(line)
        if cluster:
            gpu = int(cluster[1])
        elif step:
            steps[int(step[1])] = Step(gpu, step)
        elif edge:
            steps[int(edge[2])].before.append(int(edge[1]))
    return steps


def covered(spans):
    """How long at least one of them is."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def table(head, rows):
    rows = [head] + [[cell if isinstance(cell, str) else f"{cell:.3f}" for cell in row] for row in rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    return ["  ".join(cell.ljust(width) if k == 0 else cell.rjust(width) for k, (cell, width) in enumerate(zip(row, widths)))
            for row in rows]


def by_gpu(steps, end):
    rows = []
    for gpu in sorted({step.gpu for step in steps}):
        tasks = [step for step in steps if step.gpu == gpu and step.name]
        moves = [step for step in steps if step.gpu == gpu and step.num_bytes]
        busy = covered([step.ran for step in tasks])
        rows.append([f"GPU {gpu}", str(len(tasks)), busy, end - busy, sum(step.took() for step in tasks),
                     sum(step.planned[1] - step.planned[0] for step in tasks), covered([step.ran for step in moves])])
    return table(["", "tasks", "some task runs", "none", "sum of tasks", "as planned", "some move comes in"], rows)


def by_kind(steps):
    kinds = collections.defaultdict(list)
    for step in steps:
        if step.name:
            kinds[(step.name, "home" if step.gpu == 0 else "elsewhere")].append(step)
    rows = []
    for (name, where), members in sorted(kinds.items(), key=lambda kind: -sum(step.took() for step in kind[1])):
        planned = statistics.median(step.planned[1] - step.planned[0] for step in members)
        took = statistics.median(step.took() for step in members)
        rows.append([f"{name[-60:]}, {where}", str(len(members)), planned, took, took / planned if planned else 0.0])
    return table(["median of a task", "", "planned", "ran", "ratio"], rows)


def of_moves(steps):
    rows = []
    for size, members in sorted(collections.Counter(step.num_bytes for step in steps if step.num_bytes).items()):
        times = [step.took() for step in steps if step.num_bytes == size]
        median = statistics.median(times)
        rows.append([f"{size} bytes", str(members), median, max(times), f"{size / median / 1e6:.0f}" if median else "-"])
    return table(["median of a move", "", "took", "longest", "GB/s"], rows)


def way_to_the_end(steps):
    """By what is on it: (tasks, moves, waits), in ms, and the number of steps."""
    at = max((number for number in steps if steps[number].ran), key=lambda number: steps[number].ran[1])
    spent, count = collections.Counter(), 0
    while at is not None:
        step = steps[at]
        spent["move" if step.num_bytes else step.name or "room"] += step.took()
        count += 1
        before = [number for number in step.before if steps[number].ran]
        last = max(before, key=lambda number: steps[number].ran[1], default=None)
        spent["between steps: nothing that it was behind still ran"] += max(0.0, step.ran[0] - (steps[last].ran[1] if before else 0.0))
        at = last
    return count, spent


def report(steps):
    ran = [step for step in steps.values() if step.ran]
    if not ran:
        return ["the graph has not been launched by this plan yet"]
    end = max(step.ran[1] for step in ran)
    planned_end = max(step.planned[1] for step in steps.values())
    count, spent = way_to_the_end(steps)
    lines = [f"{len(steps)} steps, {end:.3f} ms; planned {planned_end:.3f} ms", "", *by_gpu(ran, end), "", *by_kind(ran), ""]
    if any(step.num_bytes for step in ran):
        lines += [*of_moves(ran), ""]
    rows = [[name[-60:], time, time / end] for name, time in spent.most_common()]
    return lines + table([f"{count} steps that the end waited for", "ms", "share"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=argparse.FileType(encoding="utf-8"), default=sys.stdin, help="default: standard input")
    steps = read(parser.parse_args().file)
    if not steps:
        return "plan_times.py: there is no plan of several GPUs in this: see 'tallyctl graphs'"
    print("\n".join(report(steps)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
