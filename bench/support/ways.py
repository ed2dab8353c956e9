"""The ways to run a program that are compared: natively, and under tally-run with a tallyd of our own."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Failed(Exception):
    """A part of the bench could not be measured; the sentence says why."""


def run_bench(main):
    """Runs a bench, whose `main` returns what went wrong, as sentences: one line to standard error, and exit status 1."""
    try:
        wrong = main()
    except Failed as failure:
        wrong = [str(failure)]
    if wrong:
        sys.exit(f"{os.path.basename(sys.argv[0])}: " + "; ".join(wrong))


def first_line(path):
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8") as text:
            return text.readline().strip()
    return ""


def find_root():
    """The folder with bin/ and bench/driver_calls: the bundle that holds this file, else a build folder."""
    candidates = [os.environ.get("TALLY_BUNDLE", ""), os.path.join(HERE, "..", ".."),
                  os.path.join(HERE, "..", "..", "build", "release")]
    for root in candidates:
        if root and os.access(os.path.join(root, "bin", "tally-run"), os.X_OK):
            return os.path.abspath(root)
    raise Failed("no bin/tally-run: run the copy in a bundle, or build, or set TALLY_BUNDLE")


def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
                              check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Native:
    name = "native"

    def command(self, words, priority=""):  # pylint: disable=unused-argument
        return list(words)

    def state(self):
        return None


class Daemon:
    """A private tallyd; its executors start with the first program and stay (its idle time is 60 s)."""

    def __init__(self, root, driver, priority="", arguments=(), env=None, name="tally-run"):
        self.name = name
        self.root = root
        self.priority = priority
        self.directory = tempfile.mkdtemp(prefix="tally-bench-")
        self.socket = os.path.join(self.directory, "run", "tally.sock")
        self.log_path = os.path.join(self.directory, "daemon.log")
        os.mkdir(os.path.dirname(self.socket), 0o700)
        read_end, write_end = os.pipe()
        with open(self.log_path, "wb") as log:
            # pylint: disable-next=consider-using-with
            self.process = subprocess.Popen(
                [os.path.join(root, "bin", "tallyd"), "--embedded-parent", str(os.getpid()), "--socket", self.socket,
                 "--driver", driver, "--metrics-address", "0", "--ready-fd", str(write_end), *arguments],
                pass_fds=[write_end], stdout=log, stderr=log, env={**os.environ, **(env or {})})
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            line = ready.readline()
        if not line.startswith("ready "):
            raise Failed("tallyd did not start: " + self.log())
        self.readiness = line[len("ready "):].strip()

    def log_text(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def log(self):
        return self.log_text()[-2000:]

    def command(self, words, priority=""):
        run = [os.path.join(self.root, "bin", "tally-run"), "--quiet", "--socket", self.socket]
        priority = priority or self.priority
        return run + (["--priority", priority] if priority else []) + list(words)

    def ctl_text(self, *words):
        """What tallyctl prints."""
        said = subprocess.run([os.path.join(self.root, "bin", "tallyctl"), "--socket", self.socket, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        if said.returncode != 0:
            raise Failed(f"tallyctl {' '.join(words)}: " + said.stderr.strip())
        return said.stdout

    def ctl(self, *words):
        """What tallyctl says, read from its JSON."""
        return json.loads(self.ctl_text("--json", *words))

    def state(self):
        """For people who ask why something stands still: executors, programs, what the threads of executors wait for in the kernel,
        and the activity page, in hex."""
        state = {}
        with contextlib.suppress(Failed, OSError, subprocess.SubprocessError, ValueError):
            state["executors"] = self.ctl("executors")
            state["programs"] = self.ctl("ps")
            for row in state["executors"]:
                tasks = f"/proc/{row['pid']}/task"
                state[f"threads of {row['pid']}"] = [[first_line(f"{tasks}/{task}/{name}") for name in ("comm", "wchan", "schedstat")]
                                                     for task in os.listdir(tasks)]
            with open(os.path.join(os.path.dirname(self.socket), "activity"), "rb") as page:
                state["activity"] = page.read(1024).hex()
        return state

    def executors(self):
        """Process ids."""
        return [row["pid"] for row in self.ctl("executors")]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def daemon(root, driver, priority="", **options):
    way = Daemon(root, driver, priority, **options)
    try:
        yield way
    finally:
        way.stop()


def run(way, words, timeout_s, **options):
    """Runs a program to its end; returns (stdout, seconds)."""
    began = time.monotonic()
    try:
        done = subprocess.run(way.command(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout_s, check=False,
                              **options)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"{way.name}: {os.path.basename(words[0])}: no end within {timeout_s:.0f} s") from expired
    if done.returncode != 0:
        raise Failed(f"{way.name}: exit status {done.returncode}: " + (done.stderr or done.stdout).strip()[-600:])
    return done.stdout, time.monotonic() - began
