"""Twenty clients of all kinds that come and go at one tallyd, for as long as is wanted, and what daemon and executors hold.

Each of the clients' places starts one client after another: a test program, whose checksum is compared; one that works
on until it is told to end, and compares; one that is killed on its way; one whose kernel faults; one that only
connects. The last three have domains of their own, where also executors are killed: what those who share such a domain
get may be an error, never a wrong result. In between tallyctl shows and changes, and the metrics are scraped.

Now and then all places rest. Then daemon and the executors of the two classes, which must live all along, are looked
at: what they hold in such a rest must not grow (is_flat).
"""
import contextlib
import csv
import gzip
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

from support.daemon_fixture import Refused, Session, free_port, is_alive, program, wait_until
from support.full_stack import PROGRAMS


HERE = os.path.dirname(os.path.abspath(__file__))
TEST_PROGRAMS = os.path.join(HERE, "../../programs")
sys.path.insert(0, TEST_PROGRAMS)
import run_one  # noqa: E402

NUM_PLACES = 20
PRINTING_PLACE = "place-0"  # two programs that print in one domain at a time are refused, with reason
CLIENT_SECONDS = 100
SECONDS_BETWEEN_LOSSES = 65  # more than FaultBackOff::kForgottenAfter
UNSAFE = ("faulty", "doomed")  # domains in which a client may get an error
# Quick ones, of all chapters; each ends in 50 ms on a quiet machine.
SOAK_PROGRAMS = """
async_copy copies_2d_3d copies_linear device_printf device_symbols driver_contexts driver_memory event_timing fork_child
graph_built graph_capture graph_memory graph_updates histogram host_callbacks host_registration ipc_sharing legacy_stream
malloc_async managed_memory many_threads memory_pools module_loading never_frees pinned_memory process_ends reduction
stream_dependencies texture_objects thread_contexts virtual_memory zero_copy
""".split()
END_BY_THEMSELVES = "copies_2d_3d copies_linear device_symbols graph_updates histogram memory_pools never_frees reduction".split()


def figures_of(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        rollup = file.read().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in rollup[1:]}
    return {"rss_kib": kib["Rss"], "pss_kib": kib["Pss"], "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": num_threads(pid)}


def num_threads(pid):
    """Without those of the software driver, which makes one more whenever all it has are busy."""
    names = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as name:
            names.append(name.read())
    return sum(not name.startswith("sim-") for name in names)


class Soak:
    def __init__(self, fixture, pause_seconds, seed):
        """fixture: a FullStackTest, for its directory and its daemon."""
        self.fixture = fixture
        self.pause_seconds = pause_seconds  # of a place between two clients, at most
        self.port = free_port()
        self.expected = run_one.read_expected(os.path.join(TEST_PROGRAMS, "expected_checksums.txt"))
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.wrong = []
        self.counts = {}
        self.samples = []  # seconds, is_rest, who, figures
        self.losses = []  # when
        self.ending = threading.Event()
        self.may_work = False  # guarded by came_to_rest, as what follows
        self.working = 0
        self.came_to_rest = threading.Condition()

    # -- clients

    def start(self, *command, domain="", priority="best-effort", **options):
        named = ["--domain", domain] if domain else []
        return subprocess.Popen([program("tally-run"), "--socket", self.fixture.socket_path, "--quiet", "--priority", priority,
                                 *named, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True, **options)

    def note(self, kind, wrong=""):
        with self.lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if wrong:
                self.wrong.append(f"{kind}: {wrong}")

    @staticmethod
    def end(client):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(client.pid, signal.SIGKILL)
        client.communicate()

    def run_program(self, chance, domain=""):
        name = chance.choice(SOAK_PROGRAMS)
        while name == "device_printf" and threading.current_thread().name != PRINTING_PLACE:
            name = chance.choice(SOAK_PROGRAMS)
        client = self.start(os.path.join(PROGRAMS, name), domain=domain, priority=chance.choice(["best-effort", "high"]))
        try:
            output = client.communicate(timeout=CLIENT_SECONDS)[0]
        except subprocess.TimeoutExpired:
            self.end(client)
            return self.note("program", f"{name}: no end")
        right = f"checksum: {self.expected[name]} OK" in output
        failed = domain in UNSAFE and "checksum:" not in output  # an error, no wrong result
        self.note("program", "" if right or failed else f"{name} {domain}: {client.returncode}: {output[-600:]}")

    def run_worker(self, chance, domain=""):
        client = self.start(sys.executable, os.path.join(HERE, "neighbour.py"), domain=domain, stdin=subprocess.PIPE)
        said = [client.stdout.readline().strip()]
        for _ in range(chance.randint(1, 20)):
            if said[-1] not in ("ready", "right"):
                break
            with contextlib.suppress(BrokenPipeError):
                client.stdin.write("round\n")
                client.stdin.flush()
            said.append(client.stdout.readline().strip())
        is_right = said[-1] in ("ready", "right")
        may_fail = domain in UNSAFE and not said[-1].startswith("wrong")
        self.end(client)
        self.note("worker", "" if is_right or may_fail else f"{domain}: {said[-1]}")

    def run_killed(self, chance):
        # A kernel that waits for its host never ends then, and costs the domain its executor: such are killed in one of
        # their own.
        domain = chance.choice(["", "doomed"]) if self.may_lose() else ""
        name = chance.choice(SOAK_PROGRAMS if domain else END_BY_THEMSELVES)
        client = self.start(os.path.join(PROGRAMS, name), domain=domain)
        time.sleep(chance.uniform(0, 0.1))
        self.end(client)
        self.note("killed")

    def may_lose(self):
        """Whether an executor may be lost now: a user whose executors fail one after another waits for the next."""
        with self.lock:
            now = time.monotonic()
            if len(self.losses) >= 2 and now - self.losses[-1] < SECONDS_BETWEEN_LOSSES:
                return False
            self.losses.append(now)
            return True

    def run_faulting(self, chance):
        if not self.may_lose():
            return self.run_worker(chance, "faulty")
        client = self.start(sys.executable, os.path.join(HERE, "faulting.py"), domain="faulty")
        said = client.communicate(timeout=CLIENT_SECONDS)[0].strip()
        return self.note("faulting", "" if "error" in said and "no error" not in said else said)

    def run_silent(self, chance):
        try:
            session = Session(self.fixture.socket_path, domain=chance.choice(["", "doomed"]))
        except (Refused, OSError) as error:
            return self.note("silent", "" if "doomed" in str(error) else str(error))
        time.sleep(chance.uniform(0, 0.2))
        session.close()
        self.note("silent")

    def kill_executor(self, chance):
        if not self.may_lose():
            return self.run_worker(chance, "doomed")
        for row in self.fixture.ctl_json("executors"):
            if row["domain"].startswith("doomed"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(row["pid"], signal.SIGKILL)
                self.note("killed executor")
        return None

    def control(self, chance):
        word = chance.choice(["ps", "executors", "kernels", "coverage", "version"])
        if (result := self.fixture.ctl("--json", word)).returncode != 0:
            self.note("control", f"{word}: {result.stderr}")
        rows = self.fixture.ctl_json("ps")
        if rows:  # it may be gone by now: refused then
            self.fixture.ctl("set-weight", str(chance.choice(rows)["id"]), str(chance.randint(1, 100)))
            self.fixture.ctl("set-priority", str(chance.choice(rows)["id"]), "best-effort")
        page = self.fixture.scrape(self.port)
        self.note("control", "" if "tally_sessions" in page else "a page without tally_sessions")

    def act(self, chance):
        kinds = [(self.run_program, 8), (self.run_worker, 4), (self.run_killed, 3), (self.run_silent, 2), (self.control, 2),
                 (self.run_faulting, 2), (self.kill_executor, 2), (lambda c: self.run_worker(c, "doomed"), 2),
                 (lambda c: self.run_program(c, "faulty"), 1)]
        chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0](chance)

    def place(self, seed):
        chance = random.Random(seed)
        while not self.ending.is_set():
            with self.came_to_rest:
                self.came_to_rest.wait_for(lambda: self.may_work)
                self.working += 1
            try:
                self.act(chance)
            except Exception as error:  # of the test itself, or of a daemon that does not answer
                self.note("place", repr(error))
            with self.came_to_rest:
                self.working -= 1
                self.came_to_rest.notify_all()
            self.ending.wait(chance.uniform(0, self.pause_seconds))

    # -- what is held

    def sample(self, is_rest):
        with self.lock:
            for who, pid in [("tallyd", self.daemon.pid), *self.executors.items()]:
                self.samples.append((time.monotonic() - self.began, is_rest, who, figures_of(pid)))
            files = {"files": len(os.listdir(self.fixture.directory)), "dev_shm": len(os.listdir("/dev/shm"))}
            self.samples.append((time.monotonic() - self.began, is_rest, "files", files))

    def rest(self):
        with self.came_to_rest:
            self.may_work = False
            self.came_to_rest.wait_for(lambda: self.working == 0, CLIENT_SECONDS)
        wait_until(lambda: len(self.fixture.ctl_json("ps")) == len(self.executors) and
                   {row["pid"] for row in self.fixture.ctl_json("executors")} == set(self.executors.values()),
                   "only the two that stay are left", 30)
        time.sleep(0.3)
        self.sample(True)
        self.let_work()

    def let_work(self):
        with self.came_to_rest:
            self.may_work = True
            self.came_to_rest.notify_all()

    def num_rests(self):
        return sum(is_rest and who == "tallyd" for _, is_rest, who, _ in self.samples)

    def run(self, seconds, seconds_between_rests, is_enough=lambda: True):
        """Up to six times as long if that was not enough: on a slow machine less is done in a time."""
        self.daemon = self.fixture.start_daemon("--executor-idle-seconds", "1", "--cache-directory", "",
                                                metrics=f"127.0.0.1:{self.port}", env={"TALLY_SIM_WORKERS": "1"})
        anchors = [self.start(sys.executable, os.path.join(HERE, "neighbour.py"), priority=priority, stdin=subprocess.PIPE)
                   for priority in ("best-effort", "high")]
        for anchor in anchors:
            anchor.stdout.readline()
        self.executors = {row["domain"].split(":")[0]: row["pid"] for row in self.fixture.ctl_json("executors")}
        self.began = time.monotonic()
        places = [threading.Thread(target=self.place, name=f"place-{number}", args=(self.chance.random(),), daemon=True)
                  for number in range(NUM_PLACES)]
        self.let_work()
        for thread in places:
            thread.start()
        next_rest = self.began + seconds_between_rests
        while time.monotonic() < self.began + (seconds if is_enough() else 6 * seconds):
            time.sleep(1)
            for who, pid in [("tallyd", self.daemon.pid), *self.executors.items()]:
                if not is_alive(pid):
                    self.note("process", f"{who} died")
                    self.ending.set()
                    return
            self.sample(False)
            if time.monotonic() > next_rest:
                self.rest()
                next_rest = time.monotonic() + seconds_between_rests
        self.rest()
        self.ending.set()
        for thread in places:
            thread.join(CLIENT_SECONDS)
        for anchor, priority in zip(anchors, ("best-effort", "high")):
            anchor.stdin.write("round\n")
            anchor.stdin.flush()
            self.note("anchor", "" if (said := anchor.stdout.readline().strip()) == "right" else f"{priority}: {said}")
            self.end(anchor)

    def growth(self):
        """(who, figure, median of the rests of the second quarter, of the last quarter)."""
        rests = [sample for sample in self.samples if sample[1]]
        end = rests[-1][0]
        rows = []
        for who in {sample[2]: None for sample in rests}:
            for figure in [sample for sample in rests if sample[2] == who][0][3]:
                quarter = lambda low, high: statistics.median(
                    figures[figure] for seconds, _, one, figures in rests if one == who and low * end < seconds <= high * end)
                rows.append((who, figure, quarter(0.25, 0.5), quarter(0.75, 1.0)))
        return rows

    def write(self, path):
        with gzip.open(path, "wt", newline="", encoding="ascii") as file:
            table = csv.writer(file)
            table.writerow(["seconds", "rest", "who", "figure", "value"])
            for seconds, is_rest, who, figures in self.samples:
                for figure, value in figures.items():
                    table.writerow([f"{seconds:.1f}", int(is_rest), who, figure, value])


def is_flat(figure, before, after):
    """Memory may move by 5 % or 3 MiB (an allocator's pages), all else by 2 (connections that end a moment later)."""
    if figure == "pss_kib":
        return True  # drawn only: it rises when another process that maps the same libraries ends
    return after <= before + (max(0.05 * before, 3072) if figure.endswith("kib") else 2)


def plot(samples, path):
    """A picture for each figure; dots are rests."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "svg.hashsalt": "tally"})
    names = {"pss_kib": "memory (PSS), MiB", "descriptors": "descriptors", "threads": "threads"}
    figure, all_axes = pyplot.subplots(1, len(names), figsize=(12, 3.4))
    for axes, (name, title) in zip(all_axes, names.items()):
        scale = 1024 if name.endswith("kib") else 1
        for number, who in enumerate({sample[2]: None for sample in samples if name in sample[3]}):
            own = [sample for sample in samples if sample[2] == who]
            colour = f"C{number}"
            axes.plot([s[0] / 60 for s in own], [s[3][name] / scale for s in own], color=colour, alpha=0.35, linewidth=0.7)
            rests = [s for s in own if s[1]]
            axes.plot([s[0] / 60 for s in rests], [s[3][name] / scale for s in rests], "o", color=colour, markersize=3, label=who)
        axes.set_title(title)
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
    all_axes[0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
