"""Which machine numbers come from: facts for the head of a page, in their order."""
import os
import platform
import subprocess
import time


def _line_of(*words):
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _first_match(path, key):
    try:
        with open(path, encoding="utf-8") as text:
            return next((line.split(":" if ":" in line else "=", 1)[1].strip().strip('"') for line in text
                         if line.startswith(key)), "")
    except OSError:
        return ""


def version_of(root):
    """Of a bundle what it says, of a build folder the commit of this repository."""
    try:
        with open(os.path.join(root, "VERSION"), encoding="utf-8") as text:
            return text.readline().strip()
    except OSError:
        return "build folder at " + (_line_of("git", "describe", "--always", "--dirty") or "an unknown commit")


def describe(root, packages=()):
    """`root`: the bundle or build folder that is measured. Packages that are not there are left out."""
    facts = {"when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "what": version_of(root)}
    facts["GPU"] = _line_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader") or "none"
    facts["CPU"] = f"{os.cpu_count()} x {_first_match('/proc/cpuinfo', 'model name')}"
    facts["memory"] = _first_match("/proc/meminfo", "MemTotal")
    facts["system"] = f"Linux {platform.release()}, {_first_match('/etc/os-release', 'PRETTY_NAME')}"
    facts["Python"] = platform.python_version()
    for package in packages:
        version = _line_of("python3", "-c", f"import importlib.metadata as m; print(m.version('{package}'))")
        if version:
            facts[package] = version
    return facts


def quantile(samples, q):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
