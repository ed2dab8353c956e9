"""What tools/tenants-demo is made of: a tallyd, and pods, which are namespaces with an unchanged CUDA program in them."""
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

SUPPORT = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(SUPPORT)))
# In what tools/bundle packs everything is at its top.
BUILD = os.environ.get("TALLY_BUILD") or (ROOT if os.path.exists(os.path.join(ROOT, "bin", "tallyd"))
                                          else os.path.join(ROOT, "build", "release"))
DRIVER = os.environ.get("TALLY_DEMO_DRIVER", "sim")
PROGRAM = os.path.join(SUPPORT, "pod_program.py")
# $0: the directory of the grant. No device file is left but those that every container has.
POD = ["unshare", "-m", "--pid", "--fork", "--kill-child", "sh", "-ec", """
mount -t tmpfs tmpfs /run
mkdir /run/tally /run/devices
mount --bind -o ro "$0" /run/tally
mount --bind /dev /run/devices
mount -t tmpfs tmpfs /dev
for name in null zero full random urandom; do : > /dev/$name; mount --bind /run/devices/$name /dev/$name; done
mkdir /dev/shm
mount -t tmpfs tmpfs /dev/shm
umount -l /run/devices
exec "$@"
"""]


def environment(**variables):
    """Nothing of Tally's in it but where its library is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TALLY_", "CUDA_"))}
    return kept | {"LD_LIBRARY_PATH": f"{BUILD}/lib/tally/client", **variables}


class Demo:
    def __init__(self, directory):
        self.directory, self.runs = directory, []
        self.socket = os.path.join(directory, "tally.sock")
        self.log = open(os.path.join(directory, "tallyd.log"), "w+", encoding="utf-8")
        self.tallyd = None

    def start(self, *words, metrics="0", **variables):
        """tallyd; how long it took until clients could connect."""
        read_end, write_end = os.pipe()
        began = time.monotonic()
        self.tallyd = subprocess.Popen(
            [f"{BUILD}/bin/tallyd", "--socket", self.socket, "--driver", DRIVER, "--metrics-address", metrics,
             *words, "--ready-fd", str(write_end)], pass_fds=[write_end], stderr=self.log, env={**os.environ, **variables})
        self.runs.append(self.tallyd)
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            ready.readline()
        return time.monotonic() - began

    def shown(self, text):
        print(text.rstrip("\n").replace(self.directory, "/run/tally"), flush=True)

    def ctl(self, *words):
        self.shown("$ tallyctl " + " ".join(words))
        result = subprocess.run([f"{BUILD}/bin/tallyctl", "--socket", self.socket, *words], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False, env={**os.environ, "COLUMNS": "100"})
        self.shown(result.stdout)
        return result.stdout.strip()

    def grant(self, *words):
        """Makes one and says nothing of it; its socket."""
        return subprocess.run([f"{BUILD}/bin/tallyctl", "--socket", self.socket, "grant", "create", *words],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def json(self, *words):
        return json.loads(subprocess.run([f"{BUILD}/bin/tallyctl", "--socket", self.socket, "--json", *words],
                                         stdout=subprocess.PIPE, text=True, check=True).stdout)

    def pod(self, grant, *words, said=None, quiet=False, python=(PROGRAM,), **variables):
        """Starts it; its command as people would write it is shown."""
        if not quiet:
            self.shown("$ " + (said or f"pod --grant {grant} -- " + "".join(f"{name}={value} " for name, value in variables.items())
                               + "python3 program.py " + " ".join(words)))
        run = subprocess.Popen([*POD, os.path.join(self.directory, "grants", grant), sys.executable, *python, *words],
                               env=environment(**variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        self.runs.append(run)
        return run

    def answer(self, run):
        self.shown(run.communicate(timeout=60)[0])

    def why(self, pattern):
        """What tallyd's log says of it."""
        time.sleep(0.2)
        self.log.seek(0)
        for line in self.log:
            if re.search(pattern, line):
                self.shown("tallyd: " + re.sub(r"^.*?\] \w ", "", line))

    def end(self):
        executors = [int(name[9:]) for name in os.listdir(self.directory) if name.startswith("executor-")]
        for run in reversed(self.runs):
            run.kill()
            run.communicate()
        for pid in executors:  # they outlive their tallyd
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def rss_mib(self):
        with open(f"/proc/{self.tallyd.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024

    def cpu_seconds(self):
        with open(f"/proc/{self.tallyd.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scrapes(port, count=15):
    """The median time in ms and the size in kB."""
    times, size = [], 0
    for _ in range(count):
        began = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            size = len(page.read())
        times.append(time.monotonic() - began)
    return statistics.median(times) * 1000, size / 1000
