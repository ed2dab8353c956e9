"""A process that answers with lines on its stdout."""
import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time

from ways import Failed


class Child:
    """What it writes to stderr is kept and quoted when it fails."""

    def __init__(self, words, name, env=None):
        self.name = name
        # pylint: disable-next=consider-using-with
        self.errors = tempfile.TemporaryFile()
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        env={**os.environ, **(env or {})})
        self.unread = b""

    def said(self):
        """The last lines of its stderr."""
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace")
        return " | ".join(text.strip().splitlines()[-4:])[-700:]

    def line(self, begins_with, timeout_s):
        """The next line that begins so; others are passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            line, newline, rest = self.unread.partition(b"\n")
            if newline:
                self.unread = rest
                text = line.decode(errors="replace")
                if text.startswith(begins_with):
                    return text
                continue
            with selectors.DefaultSelector() as selector:
                selector.register(self.process.stdout, selectors.EVENT_READ)
                if not selector.select(max(0, deadline - time.monotonic())):
                    raise Failed(f"{self.name}: no '{begins_with}' within {timeout_s:.0f} s; {self.said()}")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(30)
                raise Failed(f"{self.name}: ended with status {self.process.poll()}: {self.said()}")
            self.unread += more

    def answer(self, timeout_s):
        return json.loads(self.line("{", timeout_s))

    def say(self, text):
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.name}: does not listen: {error}; {self.said()}") from error

    def is_running(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self, timeout_s=15):
        """Closes its stdin, which is how it is told to end; kills it if it does not."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()
        self.errors.close()
