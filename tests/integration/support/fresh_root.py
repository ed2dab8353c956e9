"""A root file system of Debian 12 with nothing but what it must have, and a container in a copy of it.

mmdebstrap makes it once, from Debian's mirror, into build/fresh-root. The container has processes, mounts and a network
of its own; nothing of this machine is changed.
"""
import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import time

MIRROR = "http://deb.debian.org/debian"
# What tests of a package do not look at: dpkg's own books, and the copies that tools make of the files they edit.
BOOKS = ("/var/lib/dpkg", "/var/log", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock",
         "/etc/subuid-", "/etc/subgid-", "/proc", "/dev", "/sys", "/tmp")
# Raises the loopback interface of the new network, which begins without one (SIOCSIFFLAGS, IFF_UP | IFF_RUNNING).
LOOPBACK = ("import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x41))")


class Unavailable(Exception):
    """There can be no such root here; says why."""


def make_root(directory, packages):
    """The path of a root in `directory` that holds `packages`; made if it is not there."""
    if os.geteuid() != 0:
        raise Unavailable("only root can make a root file system with its owners")
    if shutil.which("mmdebstrap") is None:
        raise Unavailable("mmdebstrap is not installed (tools/setup installs it)")
    os.makedirs(directory, exist_ok=True)
    root = os.path.join(directory, hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:16])
    with open(os.path.join(directory, "lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(root):
            part = root + ".part"
            shutil.rmtree(part, ignore_errors=True)
            made = subprocess.run(
                ["mmdebstrap", "--mode=root", "--variant=essential", "--include=" + ",".join(sorted(packages)),
                 "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
                 "--dpkgopt=path-exclude=/usr/share/locale/*", "bookworm", part, MIRROR],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=450, check=False)
            if made.returncode != 0:
                shutil.rmtree(part, ignore_errors=True)
                raise Unavailable(f"no root of {MIRROR}: {made.stderr.strip().splitlines()[-1]}")
            # The packages' documents are not left out of what is tested.
            for name in os.listdir(os.path.join(part, "etc/dpkg/dpkg.cfg.d")):
                os.unlink(os.path.join(part, "etc/dpkg/dpkg.cfg.d", name))
            os.rename(part, root)
    return root


# What systemd finds in place of a machine: no hardware, control groups of its own, a few devices, everything else fresh.
MACHINE = """
mount -t sysfs -o ro none sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 none dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/shm
mount -t tmpfs none dev/shm
mount -t tmpfs -o mode=755 none run
"""
SYSTEMD = "container=test SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=1 chroot . /lib/systemd/systemd"


class Container:
    """Processes in a copy of `root`. The first one is systemd, or a shell that only buries the orphans."""

    def __init__(self, root, with_systemd=False):
        self.directory = tempfile.mkdtemp(prefix="tally-root-")
        self.root = os.path.join(self.directory, "root")
        subprocess.run(["cp", "-a", root, self.root], check=True)
        script = "\n".join([
            "set -e", 'python3 -c "$1"', f'mount --bind "{self.root}" "{self.root}"', f'cd "{self.root}"', "mount -t proc none proc",
            MACHINE if with_systemd else "mount --rbind /dev dev", "echo there",
            "exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin " +
            (SYSTEMD if with_systemd else 'chroot . /bin/bash -c "sleep infinity & wait"')])
        self.first = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--net", "--ipc", "--uts", "--cgroup", "--pid", "--fork",
             "--kill-child", "bash", "-c", script, "bash", LOOPBACK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        said = self.first.stdout.readline()
        if said != "there\n":
            self.remove()
            raise Unavailable("no container: " + said.strip())
        with open(f"/proc/{self.first.pid}/task/{self.first.pid}/children", encoding="ascii") as children:
            self.pid = children.read().split()[0]
        if with_systemd:
            self.wait_for_systemd()

    def wait_for_systemd(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            state = self.run("systemctl", "is-system-running").stdout.strip()
            if state in ("running", "degraded"):
                return
            time.sleep(0.2)
        self.remove()
        raise Unavailable(f"systemd does not start in a container here: {state}")

    def remove(self):
        with contextlib.suppress(ProcessLookupError):
            self.first.kill()
        self.first.communicate()
        shutil.rmtree(self.directory)

    def command(self, *command, user=None):
        words = ["nsenter", "--target", self.pid, "--all", "--root", "--wd", "env", "-i",
                 "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"]
        if user is not None:
            words += ["setpriv", "--reuid", user, "--regid", "nogroup" if user == "nobody" else user, "--clear-groups"]
        return words + list(command)

    def run(self, *command, user=None):
        return subprocess.run(self.command(*command, user=user), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120, check=False)

    def put(self, source, place):
        shutil.copy(source, self.root + place)

    def files(self):
        """Every file with what tells two of them apart."""
        found = {}
        for directory, names, files in os.walk(self.root):
            for name in [*names, *files]:
                path = os.path.join(directory, name)
                place = path[len(self.root):]
                if place.startswith(BOOKS):
                    continue
                state = os.lstat(path)
                content = ""
                if stat.S_ISREG(state.st_mode):
                    with open(path, "rb") as file:
                        content = hashlib.sha256(file.read()).hexdigest()
                elif stat.S_ISLNK(state.st_mode):
                    content = os.readlink(path)
                found[place] = (stat.filemode(state.st_mode), state.st_uid, state.st_gid, content)
        return found
