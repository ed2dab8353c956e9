"""tallyd whose executors' driver fails when it is told to (fault_driver.cc), a neighbour, and what each fault leaves.

A case (fault_cases.py) is carried out like this: a program of tests/programs runs with one call of the driver failing,
beside a neighbour (neighbour.py) in the same executor. Afterwards the neighbour must still compute right results,
unless the context was lost; executor and daemon must live; what is alive in the driver and the descriptors and threads
of the executor must be as before; and the program must have ended, having heard of an error if its results are wrong.
"""
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from support.daemon_fixture import is_alive, program, wait_until
from support.fault_cases import LOST
from support.full_stack import BUILD, PROGRAMS

NEIGHBOUR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "neighbour.py")
FAULT_DRIVER = os.path.join(BUILD, "tests", "libtally-fault-driver.so")
RECORDING_CLIENT = os.path.join(BUILD, "tests", "recording")
NUM_RECORDED_ERRORS = 1001  # record_calls.h
SETTLE_SECONDS = 3  # for what a session left behind to go
PROGRAM_SECONDS = 30
OK, ABSORBED, REPORTED = "ok", "absorbed", "reported"
EXECUTOR_GONE = 46


class Run(NamedTuple):
    status: int  # exit status; below 0 a signal; None: it had not ended in time
    output: str
    errors: dict  # CUDA error -> how often the client library returned it
    seconds: float


class Outcome(NamedTuple):
    verdict: str  # OK, or what is wrong
    seen: str  # ABSORBED, or which errors the program got
    detail: str
    seconds: float


class Rig:
    """With one daemon at a time, in a directory of its own."""

    def __init__(self, daemon_options=()):
        self.daemon_options = list(daemon_options)
        self.daemon = self.neighbour = None
        self.directory = ""
        self.pid = 0  # of the executor
        self.warmed = set()
        self.clean_errors = {}
        self.seconds_of_others = 0  # of a processor: daemons and executors that are gone

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def is_lost(self):
        return self.neighbour is None or self.ask_neighbour() != "right"

    # -- processes

    def start(self, plan=""):
        self.stop()
        self.directory = tempfile.mkdtemp(prefix="tally-faults-")
        self.socket_path = os.path.join(self.directory, "tally.sock")
        if plan:
            with open(os.path.join(self.directory, "plan"), "w", encoding="ascii") as file:
                file.write(plan)
        read_end, write_end = os.pipe()
        environment = {**os.environ, "TALLY_SIM_DRIVER": FAULT_DRIVER, "TALLY_FAULT_DIRECTORY": self.directory,
                       "TALLY_SIM_WORKERS": "1"}
        with open(os.path.join(self.directory, "daemon.log"), "wb") as log:
            self.daemon = subprocess.Popen(
                [program("tallyd"), "--socket", self.socket_path, "--driver", "sim", "--metrics-address", "0",
                 "--cache-directory", "", "--ready-fd", str(write_end), *self.daemon_options],
                pass_fds=[write_end], stdout=log, stderr=log, env=environment)
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            if not ready.readline().startswith("ready "):
                raise AssertionError(self.log())

    def start_neighbour(self):
        """Its first call starts the executor. What it says: ready, or an error."""
        self.neighbour = subprocess.Popen(
            [program("tally-run"), "--socket", self.socket_path, "--quiet", sys.executable, NEIGHBOUR], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = self.neighbour_says()
        pids = self.executors()
        self.pid = pids[-1] if pids else 0
        self.warmed = set()
        return said

    def stop(self):
        if self.daemon is not None:
            self.seconds_of_others += sum(map(processor_seconds_of, [self.daemon.pid, *self.executors()]))
        if self.neighbour is not None:
            self.end_neighbour()
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
        if self.directory:
            for pid in self.executors():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.directory, ignore_errors=True)
        self.daemon = None
        self.directory = ""

    def end_neighbour(self):
        self.neighbour.kill()
        with contextlib.suppress(BrokenPipeError):
            self.neighbour.communicate()
        self.neighbour = None

    def executors(self):
        """That are alive, the oldest first."""
        paths = [os.path.join(self.directory, name) for name in os.listdir(self.directory) if name.startswith("fault-")]
        pids = [int(path.rsplit("-", 1)[1]) for path in sorted(paths, key=os.path.getmtime)]
        return [pid for pid in pids if is_alive(pid)]

    def log(self):
        with open(os.path.join(self.directory, "daemon.log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def ask(self, words):
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as peer:
            peer.settimeout(20)
            peer.connect(os.path.join(self.directory, f"fault-{self.pid}"))
            peer.send(words.encode())
            answer = peer.recv(1 << 16).decode()
        if answer.startswith("error"):
            raise AssertionError(f"{words}: {answer}")
        return answer

    def numbers(self, words):
        return {name: int(value) for name, value in map(str.split, self.ask(words).splitlines())}

    # -- what is looked at

    def run(self, name, seconds=PROGRAM_SECONDS):
        errors_path = os.path.join(self.directory, "errors")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(errors_path)
        began = time.monotonic()
        # In a group of its own: children of programs go with it.
        child = subprocess.Popen([program("tally-run"), "--socket", self.socket_path, "--quiet", os.path.join(PROGRAMS, name)],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                 env={**os.environ, "TALLY_CLIENT_DIR": RECORDING_CLIENT, "TALLY_RECORD_ERRORS": errors_path})
        try:
            output, status = child.communicate(timeout=seconds)[0], child.returncode
        except subprocess.TimeoutExpired:
            output, status = b"", None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        if status is None:
            output = child.communicate()[0]
        errors = {}
        with contextlib.suppress(FileNotFoundError), open(errors_path, "rb") as file:
            counts = struct.unpack(f"<{NUM_RECORDED_ERRORS}I", file.read())
            errors = {code: count for code, count in enumerate(counts) if code and count}
        return Run(status, output.decode(errors="replace"), errors, time.monotonic() - began)

    def ask_neighbour(self):
        """One round of its work: what it says of it; "silent" if it says nothing for long."""
        with contextlib.suppress(BrokenPipeError):
            self.neighbour.stdin.write("round\n")
            self.neighbour.stdin.flush()
        return self.neighbour_says()

    def neighbour_says(self):
        signal.setitimer(signal.ITIMER_REAL, PROGRAM_SECONDS)  # readline() knows no timeout
        try:
            return self.neighbour.stdout.readline().strip() or "ended"
        except TimeoutError:
            return "silent"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def holdings(self):
        """What the executor has: kind -> number."""
        held = self.numbers("live")
        held["descriptors"] = len(os.listdir(f"/proc/{self.pid}/fd"))
        held["threads"] = len(os.listdir(f"/proc/{self.pid}/task"))
        held["mappings"] = 0  # shared memory only: heaps grow as they like
        with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="replace") as maps:
            held["mappings"] = sum("/memfd:" in line or "/dev/shm" in line for line in maps)
        return held

    def settled(self, expected):
        """What is more than expected once sessions had time to go."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            held = self.holdings()
            more = {kind: held[kind] - expected.get(kind, 0) for kind in held if held[kind] > expected.get(kind, 0)}
            if not more or time.monotonic() > deadline:
                return more
            time.sleep(0.01)

    # -- cases

    def prepare(self):
        """A daemon, an executor and a neighbour, whatever there was."""
        self.start()
        said = self.start_neighbour()
        if said != "ready" or self.ask_neighbour() != "right":
            raise AssertionError(f"the neighbour cannot work: {said}\n{self.log()}")

    def profile(self, name):
        """A run without faults, and how often it has which function called."""
        if self.neighbour is None:
            self.prepare()
        self.ask("arm cuInit 1000000 0 instead")
        run = self.run(name)
        calls = self.numbers("calls") if self.pid in self.executors() else {}
        calls.pop("fired", None)
        return run, calls

    def calls_at_start(self):
        """Functions that an executor calls from its start to the end of a program's first work."""
        self.prepare()
        return sorted(self.numbers("calls").keys() - {"fired"})

    def start_with_fault(self, case):
        """The executor's own calls count: the program may get an error, the next one must not."""
        began = time.monotonic()
        self.start(f"arm {case.function} {case.nth} {case.code} {case.form}")
        said = self.start_neighbour()
        if said == "ready":
            said = self.ask_neighbour()
        wrong = [] if said == "right" or said.startswith("error") else [f"the program: {said}"]
        if self.daemon.poll() is not None:
            wrong.append("daemon died")
        elif said != "right":
            self.end_neighbour()
            again = self.start_neighbour()
            if again == "ready":
                again = self.ask_neighbour()
            # Nothing but the fault itself was to be heard of. A context that could not be made may stay refused.
            if again != "right" and not again.startswith("error"):
                wrong.append(f"the next program: {again}")
        seen = ABSORBED if said == "right" else said.removeprefix("error ")
        log = self.log().splitlines()
        self.stop()
        return Outcome("; ".join(wrong) or OK, seen, log[-1][:160] if log else "", time.monotonic() - began)

    def left_without_fault(self, name):
        """What a run that ends well leaves, each time: "" if nothing."""
        left = []
        for _ in range(3):
            before = self.holdings()
            self.run(name)
            self.ask_neighbour()
            more = self.settled(before)
            if not more:
                return ""
            left.append(more)
        return describe(left[-1])

    def carry_out(self, case):
        began = time.monotonic()
        if self.neighbour is None or self.pid not in self.executors():
            self.prepare()
        if case.program not in self.clean_errors:
            self.clean_errors[case.program] = self.run(case.program).errors
        if case.form != LOST and case.program not in self.warmed:  # what an executor keeps of a program
            for _ in range(2):
                self.run(case.program)
            self.ask_neighbour()
            self.warmed.add(case.program)
            time.sleep(0.1)
        outcome = self.fault_once(case)
        if outcome.verdict.startswith("left"):  # once is chance: something that comes later, a cache
            again = [self.fault_once(case).verdict for _ in range(3)]
            if sum(verdict.startswith("left") for verdict in again) < 2:
                outcome = outcome._replace(verdict=OK, seen=outcome.seen + " (once " + outcome.verdict + ")")
        return outcome._replace(seconds=time.monotonic() - began)

    def fault_once(self, case):
        before = self.holdings()
        descriptors_of_daemon = len(os.listdir(f"/proc/{self.daemon.pid}/fd"))
        self.ask(f"arm {case.function} {case.nth} {case.code} {case.form}")
        run = self.run(case.program)
        seen = {code: count - self.clean_errors[case.program].get(code, 0) for code, count in run.errors.items()}
        seen = {code: count for code, count in seen.items() if count > 0}
        what_seen = " ".join(map(str, sorted(seen))) or ABSORBED
        wrong = []
        if run.status is None:
            wrong.append("hangs")
        elif run.status < 0 or run.status > 1:
            wrong.append(f"program ended with {run.status}")
        elif run.status == 1 and not seen and case.code not in run.errors and "cudaError" not in run.output:
            wrong.append("error was lost")
        if self.daemon.poll() is not None:
            wrong.append("daemon died")
        has_fired = True
        with contextlib.suppress(OSError):  # it is gone
            has_fired = case.form == LOST or self.numbers("calls")["fired"] == 1
        detail = (run.output.splitlines() or [""])[-1][:160]
        said = self.ask_neighbour()
        if case.form == LOST:
            wrong += self.after_loss(said)
            self.stop()
        elif self.pid not in self.executors():
            wrong.append("executor died")
            self.stop()
        else:
            self.ask("disarm")
            if case.program.startswith("driver_") and said.startswith("error") and int(said.split()[1]) in seen:
                what_seen += " (it went on, and lost the context itself)"
                self.stop()
            elif said != "right":
                wrong.append(f"neighbour: {said}")
                self.stop()
            else:
                if more := self.settled(before):
                    wrong.append("left " + describe(more))
                if len(os.listdir(f"/proc/{self.daemon.pid}/fd")) > descriptors_of_daemon:
                    wrong.append("left descriptors of tallyd")
        if not has_fired and not wrong:
            what_seen = "not reached"
        return Outcome("; ".join(wrong) or OK, what_seen, detail, run.seconds)

    def after_loss(self, said):
        wrong = []
        with contextlib.suppress(OSError):  # it is gone
            if self.numbers("calls")["fired"] == 0:
                return wrong if said == "right" else [f"neighbour: {said}"]
        if not said.startswith("error"):
            wrong.append(f"neighbour after the loss: {said}")
        self.end_neighbour()
        try:
            wait_until(lambda: self.pid not in self.executors(), "the executor ends", 15)
        except AssertionError:
            wrong.append("executor stays after the loss")
        said = self.start_neighbour()
        if said != "ready" or self.ask_neighbour() != "right":
            wrong.append(f"the next executor: {said}")
        return wrong


def describe(more):
    return ", ".join(f"{count} {kind}" for kind, count in more.items())


def raise_timeout(*_):
    raise TimeoutError


signal.signal(signal.SIGALRM, raise_timeout)


def processor_seconds_of(pid):
    """Of a process, and of the children that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:15])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0
