"""What both kinds of worker are made of: lines of JSON in and out, waiting for a moment."""
import contextlib
import fcntl
import json
import os
import select
import sys
import time


class Lines:
    """Requests on stdin, one JSON object to a line; replies go to what stdout was. Libraries that print meet stderr."""

    def __init__(self):
        self.replies = os.dup(1)
        os.dup2(2, 1)
        self.unread = b""

    def say(self, reply):
        rest = json.dumps(reply).encode() + b"\n"
        while rest:
            rest = rest[os.write(self.replies, rest):]

    def poll(self, timeout_s=0.0):
        """The next request; None if none comes in time (None: wait for ever). Ends the process with stdin."""
        while b"\n" not in self.unread:
            if not select.select([0], [], [], timeout_s)[0]:
                return None
            more = os.read(0, 1 << 20)
            if not more:
                sys.exit(0)
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)


def wait_until(moment):
    """CLOCK_MONOTONIC, which all processes of a machine share. Sleeps, then spins: a sleep alone comes back too late."""
    left = moment - time.monotonic()
    if left > 0.0006:
        time.sleep(left - 0.0005)
    while time.monotonic() < moment:
        pass


@contextlib.contextmanager
def turn():
    """One process at a time, of those that were started with the same TALLY_BENCH_TURN: a file. Programs in different modes that build their
    models at once, some with time slices of 1 us, would make the GPU do nothing but switch between them."""
    path = os.environ.get("TALLY_BENCH_TURN")
    if path is None:
        yield
        return
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def built(make, *arguments):
    """make(...) in a turn; its facts say how long that took."""
    with turn():
        began = time.monotonic()
        program = make(*arguments)
        program.facts["built_s"] = round(time.monotonic() - began, 1)
        return program
