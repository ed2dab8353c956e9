"""Real tallyd processes for tests, and clients that speak its hello (proto/shm/handshake_abi.h) by hand."""
import atexit
import contextlib
import faulthandler
import functools
import glob
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

BIN = os.environ["TALLY_TEST_BIN"]
OPEN_SESSION = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "open_session.py")]
SCRIPTED_EXECUTOR = os.environ.get("TALLY_TEST_SCRIPTED_EXECUTOR", "")
WATCHDOG_SECONDS = 300

HELLO = struct.Struct("<IIQII64s32s24sQQQ")
REPLY = struct.Struct("<IIQQII512s")
MAGIC = 0x594C4154
VERSION = 3  # kProtocolVersion
HIGH, BEST_EFFORT = 1, 2


def program(name):
    return os.path.join(BIN, name)


@functools.cache
def driver_table_hash():
    text = subprocess.run([program("tallyd"), "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return int(re.search(r"driver table ([0-9a-f]{16})", text).group(1), 16)


def is_alive(pid):
    """True while a thread of the process runs (a zombie does not)."""
    for path in glob.glob(f"/proc/{pid}/task/*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as stat:
            if stat.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                return True
    return False


def wait_until(condition, what, seconds=30):
    """`what` may be a function, which is called at the end of a wait in vain and tells the state of things, too."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")


class Refused(Exception):
    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


def hello(tenant="tester", priority=0, domain="", version=VERSION, table=None, magic=MAGIC, weight=0, level=0, slo="",
          turnaround_us=0, window=0, memory=0, share=0, only_starts=0, graphs=0, own_domain=0, rank=0):
    table = driver_table_hash() if table is None else table
    return HELLO.pack(magic, version, table, priority | window << 16 | graphs << 24, weight | level << 16, tenant.encode(), domain.encode(),
                      slo.encode(), int(turnaround_us * 1000), memory,
                      share | only_starts << 32 | own_domain << 40 | rank << 48)


def connected(path):
    """A connection to tallyd that has said nothing yet."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)  # waits where many others do, as programs do
    connection.settimeout(60)
    return connection


@contextlib.contextmanager
def as_user(uid):
    """Whoever connects meanwhile does so as that user. For root."""
    driver_table_hash()  # as root: that user may not reach the programs
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


class Session:
    """One client's session: only the sockets, no driver calls."""

    def __init__(self, path, raw=None, **words):
        with contextlib.closing(connected(path)) as connection:
            connection.send(hello(**words) if raw is None else raw)
            self.receive(connection)

    @classmethod
    def answered_on(cls, connection):
        """That of a client that has said hello."""
        session = cls.__new__(cls)
        session.receive(connection)
        return session

    def receive(self, connection):
        answer, fds, _, _ = socket.recv_fds(connection, 4096, 4)
        if not answer:
            raise Refused(-1, "hung up")
        _, _, _, self.id, code, _, sentence = REPLY.unpack(answer)
        if code != 0:
            for fd in fds:
                os.close(fd)
            raise Refused(code, sentence.split(b"\0")[0].decode())
        (fd,) = fds
        self.socket = socket.socket(fileno=fd)

    def is_open(self):
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self):
        self.socket.close()


class DaemonTest(unittest.TestCase):
    """Each test has a directory of its own and a watchdog; whatever it started is ended afterwards."""

    executor = SCRIPTED_EXECUTOR

    def setUp(self):
        faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
        self.directory = tempfile.mkdtemp(prefix="tally-test-")
        self.socket_path = os.path.join(self.directory, "tally.sock")
        self.daemons = []
        self.executors_seen = set()

    def tearDown(self):
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.kill()
            daemon.wait()
        for pid in self.executors_seen | set(self.noted_executors()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)
        faulthandler.cancel_dump_traceback_later()

    @staticmethod
    def end(run):
        """Of a program that a test started and may have left running."""
        if run.poll() is None:
            run.kill()
        run.communicate()

    def noted_executors(self):
        with contextlib.suppress(FileNotFoundError):
            return [int(name[9:]) for name in os.listdir(self.directory) if name.startswith("executor-")]
        return []

    def start_daemon(self, *arguments, env=None, wait=True, metrics="0", driver="sim"):
        """Starts tallyd; with `wait`, returns once it says that clients can connect."""
        read_end, write_end = os.pipe()
        command = [program("tallyd"), "--socket", self.socket_path, "--driver", driver, "--metrics-address", metrics,
                   "--ready-fd", str(write_end)]
        if self.executor:
            command += ["--executor", self.executor]
        # What is known of a program from another test would place it.
        if "--share-contexts" in arguments and "--cache-directory" not in arguments:
            command += ["--cache-directory", ""]
        # A file and no pipe: executors inherit it and may outlive the daemon.
        daemon_log = os.path.join(self.directory, f"daemon-{len(self.daemons)}.log")
        with open(daemon_log, "wb") as log:
            daemon = subprocess.Popen(command + list(arguments), pass_fds=[write_end], stderr=log, stdout=log,
                                      env={**os.environ, **(env or {})})
        daemon.log_path = daemon_log
        os.close(write_end)
        self.daemons.append(daemon)
        with os.fdopen(read_end) as ready:
            line = ready.readline() if wait else ""
        if wait:
            self.assertTrue(line.startswith("ready driver="), self.log_of(daemon))
        return daemon

    def log_of(self, daemon):
        with open(daemon.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def wait_for_failure(self, daemon):
        """The text of a daemon that ends by itself with status 1."""
        self.assertEqual(daemon.wait(60), 1)
        return self.log_of(daemon)

    def ctl(self, *arguments):
        return subprocess.run([program("tallyctl"), "--socket", self.socket_path, *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def ctl_json_at_once(self, *arguments):
        result = self.ctl("--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        if arguments == ("executors",):
            self.executors_seen |= {row["pid"] for row in rows}
        return rows

    def ctl_json(self, *arguments):
        """Sessions as their executors have them: tallyd waits for half a second, and a busy machine may give one less."""
        deadline = time.monotonic() + 10
        while True:
            rows = self.ctl_json_at_once(*arguments)
            if arguments != ("ps",) or not any(row["is_stale"] for row in rows) or time.monotonic() > deadline:
                return rows
            time.sleep(0.02)

    def session(self, **arguments):
        session = Session(self.socket_path, **arguments)
        self.addCleanup(session.close)
        return session

    def connect(self):
        connection = connected(self.socket_path)
        self.addCleanup(connection.close)
        return connection

    def assert_gets_session(self, connection):
        session = Session.answered_on(connection)
        self.addCleanup(session.close)
        connection.close()

    @staticmethod
    def is_hung_up(connection):
        """Of a client that awaits no answer."""
        return select.select([connection], [], [], 0)[0] != []

    def assert_refused(self, code, words, **arguments):
        with self.assertRaises(Refused) as caught:
            self.session(**arguments)
        self.assertEqual(caught.exception.code, code, caught.exception.sentence)
        self.assertIn(words, caught.exception.sentence)

    def scrape_at_rest(self, port):
        """Once no session is left: the last figures of a program come when its executor has ended its session."""
        wait_until(lambda: not self.ctl_json("ps"), "no session is left", 60)
        return self.scrape(port)

    def scrape_once_told(self, port):
        """Once executors have said what they do: a scrape waits for that no longer than half a second."""
        self.ctl_json("ps")
        return self.scrape(port)

    def scrape(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            return page.read().decode()


def free_port():
    """It stays bound until this process ends, so that nobody else gets it: who listens there says SO_REUSEADDR, as servers do."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    atexit.register(holder.close)
    return holder.getsockname()[1]
