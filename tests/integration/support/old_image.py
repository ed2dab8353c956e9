"""The root file system of a container of Debian 11: glibc 2.31, a shell and busybox, entered without a container runtime.

The packages come from Debian's mirror once and are kept in build/old-image. Nothing is installed on this machine.
"""
import fcntl
import hashlib
import os
import shutil
import subprocess
import urllib.request

# The last ones of the release. archive.debian.org is where releases go when the mirrors drop them.
MIRRORS = ["http://deb.debian.org/debian", "http://archive.debian.org/debian"]
PACKAGES = {
    "pool/main/g/glibc/libc6_2.31-13+deb11u11_amd64.deb":
        "05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282",
    "pool/main/d/dash/dash_0.5.11+git20200708+dd9ef66-5_amd64.deb":
        "0a4cc532fbf2c78cb4090a659fb73560981e626849532e6186f3a3ac6a45b3bc",
    "pool/main/b/busybox/busybox_1.30.1-6+b3_amd64.deb":
        "2aa23d301b2a12064f223bb400e795358b8082ce90b1b986282195e6214bf9c8",
}
# Where the tests mount things. The last is the driver library that an image brings along.
MOUNT_POINTS = ["proc", "dev", "tmp", "run/tally", "opt/tally", "opt/cuda", "opt/programs"]
IMAGE_DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


class Unavailable(Exception):
    """There can be no such image here; says why."""


def fetch(package, checksum, directory):
    path = os.path.join(directory, os.path.basename(package))
    if not os.path.exists(path):
        for mirror in MIRRORS:
            try:
                with urllib.request.urlopen(f"{mirror}/{package}", timeout=30) as source, open(path + ".part", "wb") as copy:
                    shutil.copyfileobj(source, copy)
                os.rename(path + ".part", path)
                break
            except OSError as error:
                reason = error
        else:
            raise Unavailable(f"no mirror of Debian gives {os.path.basename(package)} ({reason})")
    with open(path, "rb") as file:
        actual = hashlib.sha256(file.read()).hexdigest()
    if actual != checksum:
        os.unlink(path)
        raise Unavailable(f"{os.path.basename(package)} has the wrong checksum {actual}")
    return path


class OldImage:
    def __init__(self, directory):
        """Makes the image in `directory`, or takes the one that is there."""
        os.makedirs(directory, exist_ok=True)
        self.root = os.path.join(directory, "root")
        with open(os.path.join(directory, "lock"), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(self.root):
                self.make(directory)
        # A user who is not root is root in a namespace of his own, where the machine allows that.
        self.enter = ["unshare", "--mount", "--propagation", "private"]
        if os.geteuid() != 0:
            self.enter += ["--user", "--map-root-user"]
        probe = self.run(["/bin/sh", "-c", "echo inside"], {})
        if probe.stdout != "inside\n":
            raise Unavailable("neither root's rights nor user namespaces to enter it: " + probe.stderr.strip())

    def make(self, directory):
        part = self.root + ".part"
        shutil.rmtree(part, ignore_errors=True)
        for package, checksum in PACKAGES.items():
            subprocess.run(["dpkg-deb", "--extract", fetch(package, checksum, directory), part], check=True)
        for point in MOUNT_POINTS:
            os.makedirs(os.path.join(part, point), exist_ok=True)
        with open(part + IMAGE_DRIVER, "wb"):
            pass  # container runtimes mount the driver over a file, too
        os.rename(part, self.root)

    def command(self, command, mounts, env=None):
        """What runs `command` inside; `mounts` has what lies where, read-only."""
        script = ["set -e", 'cd "$1"', "shift", "mount --rbind /proc proc", "mount --rbind /dev dev",
                  "mount -t tmpfs none tmp"]
        for place, source in mounts.items():
            script += [f"mount --bind '{source}' '.{place}'", f"mount -o remount,bind,ro '.{place}'"]
        script += [f'exec {shutil.which("chroot")} . /bin/busybox env -i "$@"']
        variables = [f"{name}={value}" for name, value in {"PATH": "/bin:/usr/bin", **(env or {})}.items()]
        return [*self.enter, "sh", "-c", "\n".join(script), "sh", self.root, *variables, *command]

    def run(self, command, mounts, env=None):
        return subprocess.run(self.command(command, mounts, env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, errors="replace", timeout=100, check=False)
