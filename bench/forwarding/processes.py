"""CPU time of processes and of their threads, from /proc: the profile that needs no tool and no privilege."""
import dataclasses
import os


@dataclasses.dataclass
class Thread:
    name: str
    cpu_ns: int
    num_switches: int  # voluntary: it went to sleep; what a thread that spins does not do


def threads(pid):
    """{thread id: Thread} of a process; empty when it has ended."""
    found = {}
    try:
        ids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread_id in ids:
        try:
            path = f"/proc/{pid}/task/{thread_id}"
            with open(f"{path}/comm", encoding="utf-8", errors="replace") as text:
                name = text.read().strip()
            with open(f"{path}/status", encoding="utf-8", errors="replace") as text:
                switches = next((int(line.split()[1]) for line in text if line.startswith("voluntary_ctxt")), 0)
            found[thread_id] = Thread(name, _cpu_ns(path), switches)
        except OSError:
            continue  # it ended meanwhile
    return found


def _cpu_ns(path):
    try:
        with open(f"{path}/schedstat", encoding="ascii") as text:
            return int(text.read().split()[0])
    except (OSError, ValueError, IndexError):
        with open(f"{path}/stat", encoding="ascii") as text:
            fields = text.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Use:
    process: str
    thread: str
    cpu_percent: float  # of one core
    switches_per_second: float


def use_between(before, after, seconds):
    """Use per thread; `before` and `after` are {label: threads(pid)}. A thread that began meanwhile counts from 0."""
    rows = []
    for label, later in after.items():
        for thread_id, thread in later.items():
            earlier = before.get(label, {}).get(thread_id, Thread(thread.name, 0, 0))
            rows.append(Use(label, thread.name, (thread.cpu_ns - earlier.cpu_ns) / seconds / 1e7,
                            (thread.num_switches - earlier.num_switches) / seconds))
    return sorted(rows, key=lambda row: -row.cpu_percent)
