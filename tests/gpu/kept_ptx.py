#!/usr/bin/env python3
"""Machine code that travels with its PTX (docs/preemption.md), on a GPU: does the driver take the pair, does it take the
machine code of it, do the kernels run in slices, and what does a load cost?

usage: kept_ptx.py [--driver cuda|sim] [--runs N] [--output FILE.md]

Needs NVRTC and nvJitLink: the toolkit's, or those of pip (nvidia/*/lib), found by themselves or in $LD_LIBRARY_PATH.
Runs tests/integration/support/run_compiled.cc, which compiles for sm_90 (H100, H200): its results are checked in every
run. Exit status 1 if anything is not as it should be.
"""
import argparse
import glob
import os
import pathlib
import re
import site
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/support"))
import ways  # pylint: disable=wrong-import-position

ROOT = pathlib.Path(os.environ.get("TALLY_BUNDLE") or pathlib.Path(__file__).resolve().parents[2])
PROGRAM = next((path for path in (ROOT / "tests/gpu/run_compiled", ROOT / "tests/run_compiled") if path.exists()), None)
MODES = ("nvrtc", "nvrtc_library", "nvrtc_separate", "nvjitlink", "culink", "path", "memory")


def compilers():
    folders = [os.environ.get("LD_LIBRARY_PATH", ""), "/usr/local/cuda/lib64"]
    for packages in site.getsitepackages() + [site.getusersitepackages()]:
        folders += sorted(glob.glob(packages + "/nvidia/*/lib"), reverse=True)  # cu13 before single packages
    folders.append(str(ROOT / "lib"))  # of the bundle: libstdc++
    return ":".join(folder for folder in folders if folder)


def run(daemon, directory, mode, **environment):
    """Microseconds of the load, or the last line of the program."""
    place = {"path": [directory + "/K/mix.cubin"], "memory": [directory + "/K/mix.cubin"],
             "make": [directory + "/K"]}.get(mode, [])
    done = subprocess.run(
        daemon.command([str(PROGRAM), mode, *place]),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False,
        env={**os.environ, "LD_LIBRARY_PATH": compilers(), "CUDA_CACHE_PATH": directory + "/compiled",
             "TRITON_CACHE_DIR": directory, **environment})
    lines = done.stdout.splitlines() or [f"status {done.returncode}"]
    loaded = re.search(r"^loaded in (\d+) us$", done.stdout, re.MULTILINE)
    return int(loaded.group(1)) if lines[-1] == "OK" and loaded else lines[-1]


def forms(daemon):
    return [row["form"] for row in daemon.ctl("kernels") if row["name"] == "mix"]


def median_load(daemon, directory, mode, runs, **environment):
    loads = [run(daemon, directory, mode, **environment) for _ in range(runs)]
    bad = [load for load in loads if not isinstance(load, int)]
    return bad[0] if bad else round(statistics.median(loads))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", choices=("cuda", "sim"), default="cuda")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    if PROGRAM is None:
        sys.exit(f"no run_compiled below {ROOT}; set TALLY_BUNDLE to a bundle or a build folder")
    is_gpu = arguments.driver == "cuda"
    lines = ["| made by | load with PTX, us | load without, us | machine code taken | form of the kernel |",
             "|---|---|---|---|---|"]
    is_good = True
    with tempfile.TemporaryDirectory(prefix="tally-kept.") as directory:
        os.mkdir(directory + "/K")

        def start(transforms, **environment):
            return ways.daemon(str(ROOT), arguments.driver, priority="best-effort", env={"TALLY_LOG": "warning", **environment},
                               arguments=["--cache-directory", directory + "/cache", "--policy", "look-ahead",
                                          "--transforms", transforms])

        rows = {mode: [] for mode in MODES}
        with start("slices") as daemon:
            run(daemon, directory, "make")
            for mode in MODES:
                kept = median_load(daemon, directory, mode, arguments.runs)
                bare = median_load(daemon, directory, mode, arguments.runs, TALLY_KEEP_PTX="0")
                # The software driver runs what carries PTX only.
                is_good = is_good and isinstance(kept, int) and (isinstance(bare, int) or not is_gpu)
                rows[mode] += [kept, bare]
            older = run(daemon, directory, "older")
            is_good = is_good and str(older).endswith(": 209")
        # No PTX can be compiled there: what runs is machine code.
        with start("slices", CUDA_DISABLE_PTX_JIT="1") as daemon:
            for mode in MODES:
                ran = run(daemon, directory, mode) if mode != "culink" else "(needs the compiler)"
                is_good = is_good and (isinstance(ran, int) or mode == "culink")
                rows[mode].append(("yes" if is_gpu else "-") if isinstance(ran, int) else ran)
        for mode in MODES:
            with start("all", TALLY_FORCE_FORM="slices") as daemon:
                ran = run(daemon, directory, mode)
                seen = forms(daemon)
                is_good = is_good and isinstance(ran, int) and bool(seen)
                is_good = is_good and all(form.startswith("slices") for form in seen)
                rows[mode].append(", ".join(seen) if isinstance(ran, int) else ran)
    lines += [f"| {mode} | " + " | ".join(str(cell) for cell in row) + " |" for mode, row in rows.items()]
    lines += ["", f"A cubin for another device: {older}", "", "As it should be." if is_good else "NOT as it should be."]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.output:
        pathlib.Path(arguments.output).write_text(text, encoding="utf-8")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
