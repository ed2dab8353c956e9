"""A program on a terminal of its own: typed at, and seen as a person sees it (python3-pyte draws what it writes)."""
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time

from support.distribution import module

pyte = module("pyte")


class Terminal:
    def __init__(self, *command, columns=80, lines=24, env=None):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.written = b""
        self.lock = threading.Lock()
        self.master, slave = pty.openpty()
        self.slave = os.dup(slave)  # the terminal outlives the program
        self.set_size(columns, lines)
        self.modes_before = termios.tcgetattr(self.slave)
        environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        environment.pop("COLUMNS", None)
        self.run = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                    env={name: value for name, value in environment.items() if value is not None},
                                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        with contextlib.suppress(OSError):
            while piece := os.read(self.master, 65536):
                with self.lock:
                    self.written += piece
                    self.stream.feed(piece)

    def set_size(self, columns, lines):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns, lines):
        """As the terminals do that keep nothing of what they showed."""
        with self.lock:
            self.screen.resize(lines, columns)
            self.screen.erase_in_display(2)
        self.set_size(columns, lines)  # the kernel sends SIGWINCH

    def type(self, keys):
        os.write(self.master, keys.encode())

    def lines(self):
        with self.lock:
            return [line.rstrip() for line in self.screen.display]

    def text(self):
        return "\n".join(self.lines())

    def colors(self):
        with self.lock:
            return {cell.fg for row in self.screen.buffer.values() for cell in row.values()} - {"default"}

    def cursor_is_hidden(self):
        with self.lock:
            return self.screen.cursor.hidden

    def wait_for(self, words, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if words in self.text():
                return self.text()
            time.sleep(0.02)
        raise AssertionError(f"'{words}' is not on the screen:\n{self.text()}")

    def modes(self):
        return termios.tcgetattr(self.slave)

    def close(self):
        if self.run.poll() is None:
            self.run.send_signal(signal.SIGKILL)
        self.run.wait()
        os.close(self.slave)
        self.reader.join(30)
        os.close(self.master)
