#!/usr/bin/env python3
"""The table of tools/demo, and what has to be said under it.

usage: demo_table.py busy                        how busy the processors are with other things, 0 to 1, over a second
       demo_table.py row NAME SERVICE [TRAINING] one row; the files hold what the two programs printed
       demo_table.py remarks BUSY ALONE BESIDE   sentences, if the figures are not to be trusted; ALONE and BESIDE: the
                                                 service's files, BUSY: what `busy` said before
"""
import json
import sys
import time

MOST_BUSY = 0.25


def result_of(path):
    with open(path, encoding="utf-8") as file:
        return next(json.loads(line) for line in file if line.startswith("{"))


def processor_times():
    with open("/proc/stat", encoding="ascii") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return sum(times), times[3] + times[4]  # idle, and idle while something waits for a disk


def busy_share():
    total_before, idle_before = processor_times()
    time.sleep(1)
    total, idle = processor_times()
    return 1 - (idle - idle_before) / max(1, total - total_before)


def row(name, service, training=None):
    result = result_of(service)
    rate = f"{result_of(training)['iterations_per_second']:.1f}" if training else "-"
    return (f"{name:<34} {result['p50_us']:>10.0f} {result['p99_us']:>10.0f} {result['max_us']:>10.0f}   {rate}")


def remarks(busy, alone, beside):
    """`alone`, `beside`: results of the service by itself, and beside the training with priorities."""
    found = []
    if busy > MOST_BUSY:
        found.append(f"Before the first row other programs kept this machine's processors {busy * 100:.0f} % busy, "
                     "so these times say little.")
    if any(alone[key] > beside[key] for key in ("p50_us", "p99_us")):
        found.append("The service was slower alone than beside the training, so something else was at work: run "
                     "tools/demo again on a quiet machine, or longer (--seconds 20).")
    return found


def main(what, *arguments):
    if what == "busy":
        print(f"{busy_share():.3f}")
    elif what == "row":
        print(row(*arguments))
    else:
        busy, alone, beside = arguments
        for sentence in remarks(float(busy), result_of(alone), result_of(beside)):
            print(sentence)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("busy", "row", "remarks"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
