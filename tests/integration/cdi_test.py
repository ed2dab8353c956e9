#!/usr/bin/env python3
"""tallyctl cdi generate, and a container of Podman's that gets the device: the image knows nothing of Tally.

Podman and crun run in a mount namespace of their own with cgroup2, so that neither the machine's cgroups nor its
/etc/cdi matter. The image is a directory of a few of this machine's files, laid out as Debian does it.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

from support.daemon_fixture import program
from support.full_stack import BUILD, PROGRAMS, FullStackTest, not_built
from support.image import Image

CLIENT = os.path.join(BUILD, "lib", "tally", "client", "libcuda.so.1")
CUDA_PROGRAM = os.path.join(PROGRAMS, "reduction")  # linked with the static runtime
IN_NAMESPACE = """
set -e
mount --make-rprivate /
umount -R /sys/fs/cgroup 2>/dev/null || umount -Rl /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir /run/cdi
[ -z "$SPECIFICATION" ] || cp "$SPECIFICATION" /run/cdi/
exec podman --root "$STORE/root" --runroot "$STORE/run" --storage-driver vfs --runtime crun --cgroup-manager cgroupfs \
  run --rm --cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --net=none "$@"
"""


def containers_missing():
    """Why no container can be run here; empty if one can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in ("podman", "crun", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    can = subprocess.run(["unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount -t cgroup2 none /mnt"],
                         stderr=subprocess.PIPE, text=True, check=False)
    return can.stderr.strip() and "no mount namespace with cgroup2: " + can.stderr.strip()


class Generate(FullStackTest):
    def generate(self, *arguments, client=os.path.dirname(CLIENT)):
        return subprocess.run([program("tallyctl"), "--socket", self.socket_path, "cdi", "generate", *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              env={**os.environ, "TALLY_CLIENT_DIR": client})

    def setUp(self):
        super().setUp()
        self.client = os.path.join(self.directory, "client")
        os.mkdir(self.client)
        with open(os.path.join(self.client, "libcuda.so.1"), "w", encoding="ascii"):
            pass

    def test_prints_it_or_writes_it(self):
        printed = self.generate(client=self.client)
        self.assertEqual((printed.returncode, printed.stderr), (0, ""))
        path = os.path.join(self.directory, "cdi", "tally.json")
        written = self.generate("--output", path, client=self.client)
        self.assertEqual((written.returncode, written.stderr), (0, ""))
        self.assertIn("--device tally.dev/gpu=best-effort", written.stdout)
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), printed.stdout)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["tally.json"])
        mounts = {mount["hostPath"] for mount in json.loads(printed.stdout)["containerEdits"]["mounts"]}
        self.assertEqual(mounts, {self.directory, self.client, os.path.join(self.client, "libcuda.so.1")})

    def test_what_cannot_be_done_is_one_sentence(self):
        self.assertRegex(self.generate(client="/nowhere").stderr, r"^tallyctl: Tally's libcuda.so.1 is not in '/nowhere': .*\n$")
        file = os.path.join(self.directory, "file")
        with open(file, "w", encoding="ascii"):
            pass
        result = self.generate("--output", os.path.join(file, "tally.json"), client=self.client)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^tallyctl: cannot .*'.*file.*Not a directory.*sudo tallyctl cdi generate.*\n$")
        if os.geteuid() == 0:
            os.chmod(self.directory, 0o711)
            closed = os.path.join(self.directory, "closed")
            os.mkdir(closed, 0o755)
            result = subprocess.run([program("tallyctl"), "--socket", self.socket_path, "cdi", "generate", "--output",
                                     os.path.join(closed, "tally.json")], text=True, stderr=subprocess.PIPE, check=False,
                                    user=54321, group=54321, extra_groups=[],
                                    env={**os.environ, "TALLY_CLIENT_DIR": self.client})
            self.assertRegex(result.stderr, r"^tallyctl: cannot write '.*closed/tally.json': Permission denied .*\n$")
        self.socket_path = "/nowhere/tally.sock"
        self.assertRegex(self.generate(client=self.client).stderr, r"^tallyctl: the directory of tallyd's socket, '/nowhere'.*\n$")


class Containers(FullStackTest):
    def setUp(self):
        super().setUp()
        why = containers_missing() or not_built(CUDA_PROGRAM)
        if why:
            self.skipTest(f"no container can be run: {why}")
        image = Image(os.path.join(self.directory, "image"), CLIENT)
        self.image = image.path
        for path in (CUDA_PROGRAM, shutil.which("sh"), shutil.which("env"), shutil.which("cat")):
            image.put(path)
        self.start_daemon()
        self.specification = os.path.join(self.directory, "cdi", "tally.json")
        result = self.ctl("cdi", "generate", "--output", self.specification)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def contain(self, *arguments, specification=True):
        return subprocess.run(["unshare", "-m", "sh", "-c", IN_NAMESPACE, "sh", *arguments], text=True, timeout=90,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              env={**os.environ, "STORE": os.path.join(self.directory, "store"),
                                   "SPECIFICATION": self.specification if specification else ""})

    def test_an_image_without_the_device_finds_no_gpu(self):
        result = self.contain("--rootfs", self.image, "reduction", specification=False)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertNotIn(" OK", result.stdout)

    def test_a_program_with_the_device(self):
        # Root of a container is not root of the machine: high priority is a grant's, or everybody's.
        high = os.path.join(os.path.dirname(self.specification), "tally-urgent.json")
        self.assertEqual(self.ctl("grant", "create", "urgent", "--priority", "high").returncode, 0)
        self.assertEqual(self.ctl("cdi", "generate", "--grant", "urgent", "--output", high).returncode, 0)
        for priority in ("best-effort", "urgent"):
            with self.subTest(priority):
                self.specification = high if priority == "urgent" else self.specification
                result = self.contain(f"--device=tally.dev/gpu={priority}", "--rootfs", self.image, "reduction")
                self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
                self.assertTrue(result.stdout.splitlines()[-1].endswith(" OK"), result.stdout)
        self.assertEqual({row["domain"] for row in self.ctl_json("executors")}, {"best-effort:0", "high@urgent"})
        unknown = self.ctl("cdi", "generate", "--grant", "nobody")
        self.assertRegex(unknown.stderr, r"^tallyctl: there is no socket of a grant 'nobody': .*\n$")

    def test_the_high_device_is_refused_to_root_of_a_container(self):
        result = self.contain("--device=tally.dev/gpu=high", "--rootfs", self.image, "reduction")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("root of a container may not run high-priority programs", result.stderr)

    def test_a_mount_survives_where_variables_vanish(self):
        result = self.contain("--device=tally.dev/gpu=high", "--rootfs", self.image, "env", "-i", "/usr/bin/reduction")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertTrue(result.stdout.splitlines()[-1].endswith(" OK"), result.stdout)

    def test_both_kinds_of_image_have_the_library_in_its_place(self):
        result = self.contain("--device=tally.dev/gpu=high", "--rootfs", self.image, "sh", "-c",
                              "for file in /usr/lib/x86_64-linux-gnu/libcuda.so.1 /usr/lib64/libcuda.so.1 "
                              "/usr/lib/tally/client/libcuda.so.1; do cat < $file > /tmp/copy && "
                              "cat /tmp/copy | { read -r line; echo ${#line}; }; done; "
                              "echo x > /usr/lib64/libcuda.so.1 || echo read-only")
        lengths = result.stdout.split()
        self.assertEqual(len(set(lengths[:3])), 1, result.stdout + result.stderr)
        self.assertEqual(lengths[3:], ["read-only"], result.stderr)


if __name__ == "__main__":
    unittest.main()
