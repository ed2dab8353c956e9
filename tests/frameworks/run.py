#!/usr/bin/env python3
"""Runs the programs of tests/frameworks natively and under tally-run, side by side, and compares what they computed.

    run.py --output FILE.md [--only REGEX] [--jobs N] [--native-from FILE.json] ...

Writes a Markdown table, the same as JSON beside it (FILE.json), and every program's whole output in FILE.logs/. Needs
nothing but Python; the programs need their packages, and say which. Exit status 1 if a result differs or a program fails.
"""
import argparse
import concurrent.futures
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
# Defaults of packages that would make a result depend on timing, or take all memory of a GPU that several programs use.
SETTINGS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_autotune_level=0", "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR")
DEFAULT_TOLERANCE = 1e-3
stopping = threading.Event()  # interrupted: what runs is ended, what has not begun does not begin any more


class Program:
    """A file of programs/ and what its first lines say."""

    def __init__(self, path):
        self.path = path
        self.name = path.stem
        text = path.read_text()
        headers = dict(re.findall(r"^# (needs|tolerance|domain): (.*)$", text, re.MULTILINE))
        needs = dict(item.split("=") for item in headers["needs"].split())
        self.packages = needs.get("packages", "").split(",") if needs.get("packages") else []
        self.gpus = int(needs.get("gpus", 1))
        self.tolerance = float(headers.get("tolerance", DEFAULT_TOLERANCE))
        self.own_domain = headers.get("domain") == "own"
        self.is_apart = headers.get("domain") == "apart"
        self.about = re.search(r'"""(.*?)"""', text, re.DOTALL).group(1).split("\n")[0]

    def missing(self, num_gpus):
        """Why it cannot run here, or None."""
        for package in self.packages:
            try:
                found = importlib.util.find_spec(package)
            except ModuleNotFoundError:
                found = None
            if not found:
                return f"no package {package}"
        return f"needs {self.gpus} GPUs" if self.gpus > num_gpus else None


def shell(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True).stdout.decode().strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def count_gpus():
    return sum(1 for line in shell("nvidia-smi", "-L").splitlines() if line.startswith("GPU "))


def describe_machine(bundle):
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    lines = [f"when: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"]
    if bundle and (bundle / "VERSION").exists():
        lines.append("what: " + (bundle / "VERSION").read_text().splitlines()[0])
    lines += [re.sub(r" \(UUID.*", "", line) for line in shell("nvidia-smi", "-L").splitlines()] or ["GPU: none"]
    lines.append("driver: " + shell("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0])
    lines.append(f"CPU: {os.cpu_count()} x {model.group(1) if model else platform.machine()}, "
                 f"{int(memory.group(1)) >> 20 if memory else '?'} GiB")
    lines.append(f"system: {platform.platform()}, Python {platform.python_version()}")
    versions = []
    for package in ("torch", "torchvision", "torchaudio", "transformers", "timm", "triton", "jax", "flax", "cupy-cuda13x", "numba-cuda",
                    "cuda-bindings", "cuda-core", "numpy"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    lines.append("packages: " + (", ".join(versions) or "none"))
    return lines


def wait_for(process, seconds):
    """Its exit status, or why it was not waited for any longer."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at and not stopping.is_set():
        try:
            return process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            pass
    return "interrupted" if stopping.is_set() else "timeout"


def run_program(program, way, prefix, options, log_dir, scratch):
    """One run in a process group of its own. Gives what there is to compare."""
    environment = {**os.environ, **{name: os.environ.get(name, value) for name, value in SETTINGS.items()}}
    caches = tempfile.mkdtemp(prefix=f"{program.name}-{way}-", dir=scratch)
    environment.update({name: os.path.join(caches, name.lower()) for name in CACHES})
    environment["TALLY_FRAMEWORKS_DUMP_AFTER"] = str(max(1, options.timeout - 8))
    values = os.path.join(scratch, f"{program.name}.{way}.json")
    log_path = log_dir / f"{program.name}.{way}.log"
    began = time.monotonic()
    with open(log_path, "wb") as log:
        if stopping.is_set():
            raise concurrent.futures.CancelledError
        process = subprocess.Popen([*prefix, sys.executable, str(program.path), "--values", values], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, env=environment, cwd=caches, start_new_session=True)
        try:
            status = wait_for(process, options.timeout)
        finally:
            seconds = time.monotonic() - began
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
            except ProcessLookupError:
                pass
            process.wait()
    shutil.rmtree(caches, ignore_errors=True)
    text = log_path.read_text(errors="replace")
    digest = re.findall(r"^digest ([0-9a-f]{64})$", text, re.MULTILINE)
    run = {"status": status, "seconds": round(seconds, 2), "digest": digest[-1] if digest and status == 0 else None,
           "parts": dict(re.findall(r"^part (.*): ([0-9a-f]{16})$", text, re.MULTILINE)),
           "refused": sorted(set(re.findall(r"(\S+) is not supported by Tally|not supported by Tally: (.*?): CUDA", text)))}
    run["refused"] = sorted({name or use for name, use in run["refused"]})
    if run["digest"] is None:
        lines = text.splitlines()
        run["last_lines"] = lines[-40:]
        where = [line.strip() for line in lines if re.match(rf'\s*File ".*{re.escape(program.path.name)}", line \d+', line)]
        run["reason"] = (f"no end after {options.timeout:g} s" if status == "timeout" else f"exit status {status}") + (
            f", {re.sub(r'File .*, line', 'line', where[-1])}" if where else "")
        errors = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Interrupt)\b.*", line)]
        if errors:
            run["reason"] += f": {errors[-1][:160]}"
    else:
        run["values"] = values
    return run


def distance(left_path, right_path):
    """(largest difference of two runs' values, relative to the largest magnitude of the part that it is in; which part)."""
    values = []
    for path in (left_path, right_path):
        if not path or not os.path.exists(path):
            return float("inf"), "no values"
        values.append(json.loads(pathlib.Path(path).read_text()))
    left, right = values
    worst = (0.0, "none")
    for name in sorted(left.keys() | right.keys()):
        if len(left.get(name, [])) != len(right.get(name, [])):
            return float("inf"), name
        difference = max((abs(a - b) for a, b in zip(left[name], right[name])), default=0)
        worst = max(worst, (difference / max(*map(abs, left[name]), 1e-300, 0), name))
    return worst


def judge(program, natives, tally):
    """One of: same, within tolerance, DIFFERS, FAILED, native failed; with a sentence."""
    good = [run for run in natives if run["digest"]]
    if len(good) < len(natives):
        reason = next(run for run in natives if not run["digest"])["reason"]
        if tally:
            reason += "; tally-run: " + ("the same" if tally.get("reason") == reason else tally.get("reason", "has a digest"))
        return "native failed", reason
    if not tally:
        return "native only", ""
    if not tally["digest"]:
        return "FAILED", tally["reason"]
    if tally["digest"] in (run["digest"] for run in good):
        return "same", "" if len({run["digest"] for run in good}) == 1 else "as one of two native runs, which differ"
    parts = [name for name, value in tally["parts"].items() if value not in [run["parts"].get(name) for run in good]]
    if len({run["digest"] for run in good}) == 1:
        return "DIFFERS", "in " + ", ".join(parts)
    native_distance, where = distance(good[0].get("values"), good[-1].get("values"))
    tally_distance, tally_where = min(distance(run.get("values"), tally.get("values")) for run in good)
    sentence = (f"native runs differ by {native_distance:.1e} ({where}), tally-run by {tally_distance:.1e} ({tally_where}); "
                f"allowed {program.tolerance:.0e}")
    return ("within tolerance" if tally_distance <= program.tolerance else "DIFFERS"), sentence


class Daemon:
    """One tallyd for all programs, in a directory of its own."""

    def __init__(self, tally_run, scratch, log_path, driver, words=(), beside=None):
        self.socket = os.path.join(scratch, "daemon", "tally.sock")
        os.mkdir(os.path.dirname(self.socket), 0o700)
        reader, writer = os.pipe()
        self.log = open(log_path, "wb")
        if "--metrics-address" not in words:
            words = [*words, "--metrics-address", "0"]
        self.process = subprocess.Popen([str(tally_run.parent / "tallyd"), "--socket", self.socket, "--driver", driver, "--ready-fd", str(writer),
                                         *words], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        pass_fds=[writer], start_new_session=True)
        os.close(writer)
        with os.fdopen(reader) as ready:
            line = ready.readline()
        if not line.startswith("ready"):
            self.process.kill()
            sys.exit(f"run.py: tallyd did not start; see {log_path}")
        print(f"tallyd: {line.strip()}", flush=True)
        self.beside = beside and subprocess.Popen([str(tally_run), "--socket", self.socket, "--priority", "high", "--", *beside],
                                                  stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def stop(self):
        if self.beside:
            print(f"{self.beside.args[-1]}, the program beside: " + ("ran until the end" if self.beside.poll() is None else
                                                                     f"ended with {self.beside.returncode} too early"), flush=True)
            self.beside.kill()
            self.beside.wait()
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def write_table(path, machine, rows, options):
    text = ["# Frameworks: native and under tally-run", ""] + [f"* {line}" for line in machine] + [""]
    text.append(f"{options.jobs} programs at a time; every run starts with empty compilation caches; under tally-run all share "
                + ("nothing (a daemon each)." if options.embedded else "one running tallyd."))
    text += ["", "| program | native digest | tally-run digest | verdict | native (s) | tally-run (s) | refused calls |", "|---|---|---|---|---:|---:|---|"]
    for row in rows:
        native, tally = row["native"], row["tally"]
        text.append("| {} | {} | {} | {} | {} | {} | {} |".format(
            row["program"], native[0]["digest"][:16] if native and native[0]["digest"] else "-",
            tally["digest"][:16] if tally and tally["digest"] else "-", row["verdict"] + (f": {row['why']}" if row["why"] else ""),
            native[-1]["seconds"] if native else "-", tally["seconds"] if tally else "-", ", ".join(tally["refused"]) if tally else ""))
    counts = {}
    for row in rows:
        kind = "not run" if row["verdict"].startswith("not run") else row["verdict"]
        counts[kind] = counts.get(kind, 0) + 1
    text += ["", f"**{len(rows)} programs: " + ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())) + ".**"]
    for row in rows:
        for way, runs in (("native", row["native"]), ("tally-run", [row["tally"]])):
            for run in [run for run in runs if run and run.get("last_lines")][:1]:
                text += ["", f"### {row['program']}, {way}", "```", *run["last_lines"], "```"]
    path.write_text("\n".join(text) + "\n")
    return counts


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the Markdown file; .json and .logs/ are put beside it")
    parser.add_argument("--only", default="", help="regular expression that a program's name must match")
    parser.add_argument("--jobs", type=int, default=4, help="programs at a time")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run of one program")
    parser.add_argument("--native-from", type=pathlib.Path, help="JSON of an earlier run: its native results are not computed again")
    parser.add_argument("--skip-tally", action="store_true", help="native runs only (to make a file for --native-from)")
    parser.add_argument("--embedded", action="store_true", help="a private daemon for each program instead of one for all")
    parser.add_argument("--driver", default="auto", help="tallyd's driver: auto, cuda, sim")
    parser.add_argument("--tallyd", default="", help="more options of that one tallyd, as words in one argument")
    parser.add_argument("--beside", default="", help="a high-priority program that runs all the while under tally-run: it makes kernels give the GPU back")
    parser.add_argument("--tally-run", type=pathlib.Path, help="default: bin/tally-run of the bundle this file is in")
    parser.add_argument("--programs", type=pathlib.Path, default=PROGRAMS, help="the folder of the programs")
    parser.add_argument("--list", action="store_true", help="only show the programs and what they need")
    return parser.parse_args()


def main():
    options = parse()
    programs = [Program(path) for path in sorted(options.programs.glob("*.py")) if re.search(options.only, path.stem)]
    if options.list:
        for program in programs:
            print(f"{program.name}: {program.about} [{program.gpus} GPU, {', '.join(program.packages)}]")
        return 0
    bundle = HERE.parent.parent
    tally_run = (options.tally_run or bundle / "bin" / "tally-run").resolve()
    if not options.skip_tally and not tally_run.exists():
        sys.exit(f"run.py: no {tally_run}; name one with --tally-run")
    output = options.output.resolve()
    log_dir = output.with_suffix(".logs")
    log_dir.mkdir(parents=True, exist_ok=True)
    known = {row["program"]: row["native"] for row in json.loads(options.native_from.read_text())["rows"]} if options.native_from else {}
    machine, num_gpus = describe_machine(bundle), count_gpus()
    scratch = tempfile.mkdtemp(prefix="tally-frameworks.")
    daemon = None
    rows, counts = {}, {}

    def one(program):
        missing = program.missing(num_gpus)
        if missing:
            return {"program": program.name, "native": [], "tally": None, "verdict": f"not run: {missing}", "why": ""}
        natives = known.get(program.name) or []
        for run in natives:
            run.pop("values", None)
        # Runs that are not alike are compared by their values, which are not kept.
        if not natives or len({run["digest"] for run in natives}) != 1 or not natives[0]["digest"]:
            natives = [run_program(program, f"native-{index}", [], options, log_dir, scratch) for index in range(2)]
        tally = None
        if not options.skip_tally:
            where = ["--embedded", "--driver", options.driver] if options.embedded else ["--socket", daemon.socket]
            if program.own_domain and not options.embedded:
                where += ["--domain", program.name.replace("_", "-")]
            if program.is_apart:
                where.append("--apart")
            tally = run_program(program, "tally", [str(tally_run), *where, "--"], options, log_dir, scratch)
        verdict, why = judge(program, natives, tally)
        return {"program": program.name, "native": natives, "tally": tally, "verdict": verdict, "why": why}

    try:
        if not options.skip_tally and not options.embedded:
            daemon = Daemon(tally_run, scratch, log_dir / "tallyd.log", options.driver, options.tallyd.split(), options.beside.split())
        began = time.monotonic()
        order = sorted(programs, key=lambda program: (-program.gpus, "compile" not in program.name, program.name))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            tasks = [pool.submit(one, program) for program in order]
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: (stopping.set(), [task.cancel() for task in tasks]))
            for done in concurrent.futures.as_completed(tasks):
                if done.cancelled() or isinstance(done.exception(), concurrent.futures.CancelledError):
                    continue
                row = done.result()
                if row["tally"] and row["tally"]["status"] == "interrupted":
                    continue
                rows[row["program"]] = row
                times = [run["seconds"] for run in row["native"]] + ([row["tally"]["seconds"]] if row["tally"] else [])
                print(f"[{time.monotonic() - began:5.0f} s] {row['program']}: {row['verdict']} {row['why']} {times}", flush=True)
                ordered = [rows[name] for name in sorted(rows)]
                output.with_suffix(".json").write_text(json.dumps({"machine": machine, "rows": ordered}, indent=1))
                counts = write_table(output, machine, ordered, options)  # a run that is cut short leaves what it has
    finally:
        if daemon:
            daemon.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{output}: {counts}")
    return 0 if set(counts) <= {"same", "within tolerance", "not run", "native only"} else 1


if __name__ == "__main__":
    sys.exit(main())
