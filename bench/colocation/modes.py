"""The ways to share a GPU that are compared.

    alone          natively, one program at a time: what everything is compared with
    time-slicing   natively, both at once: what the driver does by itself
    driver-slices  natively, with the driver's time slices set from outside: 1 s for services, 1 us for trainings
    mps            under NVIDIA's Multi-Process Service
    mps-priority   the same, the trainings with a lower client priority
    tally[:POLICY][+transforms|+gates|+gates-always|+slices|+workers][+shared][+suspended][+unrefreshed][+unheld][/SLICE_US][@THRESHOLD_US]
                   under a tallyd of its own, services high-priority, trainings best-effort: with tallyd's default
                   policy or the one named, with `--transforms all`, `gate` (gates rest where contexts are descheduled),
                   gates that never rest, `slices` or `workers`, in one context (`--share-contexts`), with `--suspend-best-effort`, with
                   `--no-refresh-contexts`, with `--no-hold-gpu`, with that time slice for best-effort work (0: the
                   driver's own), with that turnaround threshold

Transforms, descheduling and thresholds need a policy that minds them, or one context: `tally:look-ahead+suspended`.
`tally:none` schedules nothing: it is the driver's time slices, set long for services and short for trainings, alone.
"""
import contextlib
import os
import re
import shutil
import subprocess
import tempfile

import ways
from ways import Failed

# What stands behind tally[:POLICY]: at most one of the first, then any of the others; and what it means to tallyd.
TRANSFORMS = {"transforms": ["--transforms", "all"], "gates": ["--transforms", "gate"],
              "gates-always": ["--transforms", "gate", "--gates-rest-after-ms", "0"],
              "slices": ["--transforms", "slices"], "workers": ["--transforms", "workers"]}
SWITCHES = {"shared": "--share-contexts", "suspended": "--suspend-best-effort", "unrefreshed": "--no-refresh-contexts",
            "unheld": "--no-hold-gpu"}
NUMBERS = {"slice": ("/", "[0-9]+", "--time-slice-us"), "threshold": ("@", "[0-9.]+", "--turnaround-us")}
TALLY = re.compile(r"^tally(:(?P<policy>[a-z-]+))?" + rf"(\+(?P<transforms>{'|'.join(sorted(TRANSFORMS, key=len, reverse=True))}))?"
                   + "".join(rf"(?P<{name}>\+{name})?" for name in SWITCHES)
                   + "".join(f"({sign}(?P<{name}>{number}))?" for name, (sign, number, _) in NUMBERS.items()) + "$")
TALLY_GRAMMAR = ("tally[:POLICY][" + "|".join("+" + name for name in TRANSFORMS) + "]" + "".join(f"[+{name}]" for name in SWITCHES)
                 + "[/SLICE_US][@THRESHOLD_US]")
NATIVE = ("alone", "time-slicing")
DRIVER_SLICES = "driver-slices"
MPS = ("mps", "mps-priority")
POLICIES = ("none", "kernel-granular", "tally-paper", "fair", "tally")


def check(names):
    for name in names:
        if name not in NATIVE + MPS + (DRIVER_SLICES,) and not TALLY.match(name):
            raise Failed(f"there is no mode '{name}': {', '.join((*NATIVE, *MPS, DRIVER_SLICES, TALLY_GRAMMAR))}")


def rewrites(mode):
    """Kernels of trainings are made so that they can give the GPU back."""
    parts = TALLY.match(mode)
    return bool(parts and parts["transforms"])


def suspends(mode):
    """Best-effort contexts are to be descheduled, where the driver does that."""
    parts = TALLY.match(mode)
    return bool(parts and parts["suspended"])


def num_executors(place):
    """How many a tallyd has, for however many programs; none if this is not one."""
    parts = TALLY.match(place)
    return 0 if not parts else 1 if parts["shared"] else 2


def daemon_arguments(root, mode):
    """tallyd's options for a mode; Failed if this tallyd does not have them."""
    parts = TALLY.match(mode)
    arguments = []
    if parts["policy"]:
        said = subprocess.run([os.path.join(root, "bin", "tallyd"), "--help"], stdout=subprocess.PIPE, text=True, timeout=30,
                              check=False).stdout
        policies = re.search(r"--policy.*?(?=\n\s*--|\n\n|\Z)", said, re.DOTALL)
        if not policies:
            raise Failed("this tallyd has no --policy")
        if not re.search(rf"(?<![a-z-]){re.escape(parts['policy'])}(?![a-z-])", policies.group()):
            raise Failed(f"this tallyd does not offer the policy '{parts['policy']}'")
        arguments += ["--policy", parts["policy"]]
    if parts["transforms"]:
        arguments += TRANSFORMS[parts["transforms"]]
    arguments += [option for name, option in SWITCHES.items() if parts[name]]
    for name, (_, _, option) in NUMBERS.items():
        arguments += [option, parts[name]] if parts[name] else []
    return arguments


class Place:
    """Where the programs of a mode run. `command` and `environment` make a worker's process one of this mode."""

    def __init__(self, name, way, environment=None):
        self.name = name
        self.way = way
        self.environments = environment or {}

    def command(self, words, role):
        return self.way.command(words, "high" if role == "service" else "best-effort")

    def environment(self, role):
        return self.environments.get(role, {})

    def state(self):
        """What its tallyd says; nothing where there is none."""
        return self.way.state()


@contextlib.contextmanager
def mps(with_priorities):
    """A control daemon of our own, with its own pipes; it is told to quit at the end."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise Failed("nvidia-cuda-mps-control is not on this machine")
    with tempfile.TemporaryDirectory(prefix="tally-mps-") as directory:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(directory, "pipe"),
                       "CUDA_MPS_LOG_DIRECTORY": os.path.join(directory, "log")}
        for path in environment.values():
            os.mkdir(path)
        everything = {**os.environ, **environment}

        def tell(words, text=""):
            # Into a file: the daemon keeps what it is given open, so the end of a pipe would not come.
            with tempfile.TemporaryFile(mode="w+") as said:
                status = subprocess.run([control, *words], input=text, env=everything, stdout=said, stderr=said, text=True,
                                        timeout=60, check=False).returncode
                said.seek(0)
                return status, said.read().strip()[-300:]

        status, said = tell(["-d"])
        if status != 0:
            raise Failed(f"nvidia-cuda-mps-control did not start: {said}")
        try:
            environments = {role: {**environment, **({"CUDA_MPS_CLIENT_PRIORITY": priority} if with_priorities else {})}
                            for role, priority in (("service", "0"), ("training", "1"))}
            yield Place("mps-priority" if with_priorities else "mps", ways.Native(), environments)
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                tell([], "quit\n")


def driver_slices(root):
    library = os.path.join(root, "bench", "tally_time_slices.so")
    if not os.path.exists(library):
        raise Failed(f"{library} is missing")
    return Place(DRIVER_SLICES, ways.Native(), {role: {"LD_PRELOAD": library, "TALLY_TIME_SLICE_US": slice_us}
                                                for role, slice_us in (("service", "1000000"), ("training", "1"))})


@contextlib.contextmanager
def tally(root, driver, mode):
    with tempfile.TemporaryDirectory(prefix="tally-bench-cache-") as cache:
        arguments = ["--cache-directory", cache, *daemon_arguments(root, mode)]
        with ways.daemon(root, driver, arguments=arguments, name=mode) as way:
            yield Place(mode, way)


def missing(root, mode, smoke):
    """Why a mode cannot be measured here, as far as that can be told before anything is started for it; None if it can."""
    if smoke and mode in MPS + (DRIVER_SLICES,):
        return "there is none without a GPU"
    if mode in MPS and shutil.which("nvidia-cuda-mps-control") is None:
        return "nvidia-cuda-mps-control is not on this machine"
    try:
        if mode == DRIVER_SLICES:
            driver_slices(root)
        elif TALLY.match(mode):
            daemon_arguments(root, mode)
    except Failed as failure:
        return str(failure)
    return None


def place_of(mode):
    """Modes of one place share processes: alone and time-slicing differ only in who works."""
    return "native" if mode in NATIVE else mode


@contextlib.contextmanager
def enter(root, name, smoke):
    """The place of that name, until the end of the block."""
    if name == "native" and not smoke:
        yield Place(name, ways.Native())
    elif name == "native":
        # Without a GPU nothing runs natively; a daemon that does nothing else stands in.
        with ways.daemon(root, "sim", name=name) as way:
            yield Place(name, way)
    elif name == DRIVER_SLICES:
        if smoke:
            raise Failed("there are no time slices without a GPU")
        yield driver_slices(root)
    elif name in MPS:
        if smoke:
            raise Failed("there is no MPS without a GPU")
        with mps(name == "mps-priority") as place:
            yield place
    else:
        with tally(root, "sim" if smoke else "cuda", name) as place:
            yield place
