#!/usr/bin/env python3
"""Runs a build and shows how far it is: on a terminal one line that changes, elsewhere a line for each tenth.

usage: progress.py LOG COMMAND...     COMMAND's output goes to LOG; its exit status is ours

What counts is Ninja's "[n/m]". The time left is that of the steps so far, so it is only a hint.
"""
import re
import subprocess
import sys
import time

STEP = re.compile(r"^\[(\d+)/(\d+)\]")
LEAST_STEPS = 20  # before which nothing can be said about the time left


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def line_of(done, total, elapsed):
    left = ""
    if LEAST_STEPS <= done < total:
        left = f", about {duration(elapsed / done * (total - done))} left"
    return f"  [{done}/{total}] {duration(elapsed)}{left}"


class Display:
    def __init__(self, output):
        self.output = output
        self.is_terminal = output.isatty()
        self.tenth = -1
        self.width = 0

    def show(self, done, total, elapsed):
        text = line_of(done, total, elapsed)
        if self.is_terminal:
            self.output.write("\r" + text.ljust(self.width))
            self.width = len(text)
        elif done * 10 // total > self.tenth:
            self.tenth = done * 10 // total
            self.output.write(text + "\n")
        self.output.flush()

    def end(self):
        if self.is_terminal and self.width:
            self.output.write("\n")


def main(log_path, *command):
    display = Display(sys.stdout)
    began = time.monotonic()
    with open(log_path, "w", encoding="utf-8") as log, \
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace") as build:
        for line in build.stdout:
            log.write(line)
            step = STEP.match(line)
            if step:
                display.show(int(step.group(1)), int(step.group(2)), time.monotonic() - began)
    display.end()
    return build.returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
