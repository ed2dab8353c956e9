#!/usr/bin/env python3
"""tools/package's work: the .deb is installed in a fresh root, used, removed and purged; the tarball runs where it lies."""
import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.daemon_fixture import wait_until
from support.fresh_root import Container, Unavailable, make_root
from support.full_stack import BUILD, PROGRAMS, not_built

ROOT = os.environ["TALLY_TEST_SOURCE"]
PROGRAM = os.path.join(PROGRAMS, "atomics_integer")
OUTPUT = os.path.join(BUILD, "tests", "packages")
SHIPPED = ("tallyd", "tally-device-plugin", "tally-executor", "tally-switch-test", "tallyctl", "tally-run", "cubin-gate")


def package(*arguments, enter=()):
    return subprocess.run([*enter, os.path.join(ROOT, "tools", "package"), "--preset", os.path.basename(BUILD), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=280, check=False)


@functools.cache
def made(kind, pattern):
    """The package of that kind, made anew once."""
    shutil.rmtree(os.path.join(OUTPUT, kind), ignore_errors=True)
    result = package(kind, "--output", os.path.join(OUTPUT, kind))
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    sys.stderr.write(result.stdout)
    (path,) = glob.glob(os.path.join(OUTPUT, kind, pattern))
    return path


class DebTest(unittest.TestCase):
    with_systemd = False

    @classmethod
    def setUpClass(cls):
        cls.deb = made("deb", "*.deb")
        cls.fields = dict(line.split(": ", 1) for line in subprocess.run(
            ["dpkg-deb", "--field", cls.deb], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
                          if re.match(r"[A-Z][\w-]*: ", line))
        needs = {re.split(r"[ (|]", need.strip())[0] for need in cls.fields["Depends"].split(",")}
        try:
            root = make_root(os.path.join(os.path.dirname(BUILD), "fresh-root"), needs)
            cls.container = Container(root, cls.with_systemd)
        except Unavailable as reason:
            raise unittest.SkipTest(str(reason)) from reason
        cls.addClassCleanup(cls.container.remove)

    def inside(self, *command, user=None):
        result = self.container.run(*command, user=user)
        self.assertEqual(result.returncode, 0, f"{command}: {result.stdout}")
        return result.stdout

    def processes_of_tally(self):
        return self.container.run("sh", "-c", "cat /proc/[0-9]*/comm | grep ^tally").stdout.split()


class Deb(DebTest):
    """Where no systemd runs, as in an image of a container."""

    def test_installed_used_removed_and_purged_it_leaves_nothing(self):
        before = self.container.files()
        self.container.put(self.deb, "/tmp/tally.deb")
        self.container.put(PROGRAM, "/tmp/program")
        self.inside("dpkg", "--install", "/tmp/tally.deb")
        for name in SHIPPED:
            self.assertIn(name, self.inside(name, "--help"))
        self.assertIn("tally", self.inside("getent", "passwd", "tally"))
        self.assertEqual(self.inside("stat", "-c", "%U %a", "/run/tally", "/var/cache/tally"), "tally 711\ntally 700\n")
        self.assertIn("/etc/systemd/system/sockets.target.wants/tally.socket", self.container.files())

        # No systemd here: the service's command as the service's user.
        service = subprocess.Popen(self.container.command("tallyd", "--config", "/etc/tally/tallyd.json", user="tally"),
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(service.communicate)
        wait_until(lambda: os.path.exists(self.container.root + "/run/tally/tally.sock") or service.poll() is not None,
                   "tallyd listens")
        self.assertIsNone(service.poll())
        output = self.inside("tally-run", "/tmp/program", user="nobody")
        self.assertTrue(output.splitlines()[-1].endswith(" OK"), output)
        sys.stderr.write(output)
        self.assertIn("best-effort:65534", self.inside("tallyctl", "executors"))

        # An upgrade leaves the service and its executors as they are.
        self.inside("dpkg", "--install", "/tmp/tally.deb")
        self.assertEqual(sorted(self.processes_of_tally()), ["tally-executor", "tallyd"])
        self.inside("sed", "-i", "s/best-effort/high/", "/etc/tally/tallyd.json")

        self.inside("dpkg", "--remove", "tally")
        self.assertEqual(self.processes_of_tally(), [])
        self.assertEqual(service.wait(60), 0)
        left = set(self.container.files()) - set(before)
        self.assertIn("/etc/tally/tallyd.json", left, "what the administrator wrote stays until it is purged")
        self.assertFalse([path for path in left if path.startswith("/usr/")], left)

        self.inside("dpkg", "--purge", "tally")
        self.assertEqual(self.container.run("getent", "passwd", "tally").returncode, 2)
        after = self.container.files()
        self.assertEqual({path: (before.get(path), after.get(path)) for path in {*before, *after}
                          if before.get(path) != after.get(path)}, {})

    def test_fields(self):
        self.assertEqual((self.fields["Package"], self.fields["Architecture"]), ("tally", "amd64"))
        for need in ("libgrpc++", "libprotobuf", "libprometheus-cpp-pull", "libsystemd0", "libzstd1", "liblz4-1", "libc6"):
            self.assertRegex(self.fields["Depends"], r"(^|, )" + re.escape(need))

    def test_manual_and_completion(self):
        listed = subprocess.run(["dpkg-deb", "--contents", self.deb], stdout=subprocess.PIPE, text=True, check=True).stdout
        for path in ("man/man1/tally-run.1", "man/man1/tallyctl.1", "man/man5/tallyd.json.5", "man/man8/tallyd.8",
                     "bash-completion/completions/tallyctl", "zsh/vendor-completions/_tallyctl",
                     "fish/vendor_completions.d/tallyctl.fish"):
            self.assertRegex(listed, rf"\./usr/share/{re.escape(path)}(\.gz)?\n")


class Service(DebTest):
    """Where systemd runs: the units."""

    with_systemd = True

    def journal(self, *arguments):
        return self.inside("journalctl", "--unit", "tallyd", "--no-pager", "--output", "cat", *arguments)

    def change(self, old, new):
        self.inside("sed", "-i", f"s/{old}/{new}/", "/etc/tally/tallyd.json")
        self.inside("systemctl", "reload", "tallyd")

    def test_started_activated_reloaded_and_purged(self):
        self.container.put(self.deb, "/root/tally.deb")
        self.container.put(PROGRAM, "/usr/local/bin/program")
        self.inside("dpkg", "--install", "/root/tally.deb")
        self.assertEqual(self.inside("systemctl", "is-active", "tallyd.service", "tally.socket"), "active\nactive\n")
        self.assertEqual(self.inside("systemctl", "show", "tallyd", "--property", "LimitNICE", "--value"), "25\n")
        self.assertEqual(self.inside("stat", "-c", "%U %a", "/run/tally", "/var/cache/tally"), "tally 711\ntally 700\n")

        # The socket stays when tallyd ends, and its next client starts it.
        self.inside("systemctl", "stop", "tallyd")
        output = self.inside("tally-run", "/usr/local/bin/program", user="nobody")
        self.assertTrue(output.splitlines()[-1].endswith(" OK"), output)
        self.inside("systemctl", "is-active", "tallyd.service")

        self.change('"max_sessions": 1024', '"max_sessions": 99')
        wait_until(lambda: "changed: max_sessions" in self.journal(), "the file is read again")
        self.assertNotIn("max_sessions", self.journal("--priority", "warning"))
        self.change('"max_sessions"', '"max_sesions"')
        wait_until(lambda: "unknown key 'max_sesions'" in self.journal("--priority", "err"), "the mistake is an error")
        self.inside("systemctl", "is-active", "tallyd.service")

        self.inside("dpkg", "--purge", "tally")
        self.assertEqual(self.processes_of_tally(), [])
        self.assertEqual(self.inside("find", "/", "-xdev", "-path", "/proc", "-prune", "-o", "-name", "*tally*", "-print"),
                         "/root/tally.deb\n")
        self.assertEqual(self.inside("find", "/run", "-name", "*tally*"), "")


class Tarball(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="tally-tarball-")
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        path = made("tarball", "*.tar.gz")
        subprocess.run(["tar", "-xf", path, "-C", cls.directory], check=True)
        (cls.top,) = glob.glob(os.path.join(cls.directory, "*"))

    def elf_files(self):
        for directory, _, names in os.walk(self.top):
            for name in names:
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF" and not os.path.islink(path):
                        yield path

    def test_a_program_runs_from_where_it_was_unpacked(self):
        run = subprocess.run([os.path.join(self.top, "bin", "tally-run"), "--embedded", "--driver", "sim", PROGRAM],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertTrue(run.stdout.splitlines()[-1].endswith(" OK"), run.stdout)

    def test_it_brings_every_library_but_glibc_s(self):
        glibc = re.compile(r"linux-vdso|/ld-linux|lib(c|m|resolv|pthread|dl|rt)\.so")
        for name in SHIPPED:
            listed = subprocess.run(["ldd", os.path.join(self.top, "bin", name)], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, check=False).stdout
            for line in listed.splitlines():
                if "=>" in line and not glibc.search(line):
                    self.assertIn(self.top, os.path.normpath(line.split("=> ")[1]), f"{name}: {line}")

    def test_readme_names_the_glibc_that_is_needed(self):
        with open(os.path.join(self.top, "README"), encoding="utf-8") as file:
            readme = file.read()
        named = dict(re.findall(r"^\| (tally-run|tallyd)\b.*glibc (\d+\.\d+) or newer", readme, re.MULTILINE))
        version = lambda text: tuple(int(part) for part in text.split("."))
        newest = {"tally-run": (0,), "tallyd": (0,)}
        for path in self.elf_files():
            client = os.path.basename(path) == "tally-run" or "/client/" in path
            symbols = subprocess.run(["objdump", "-T", path], stdout=subprocess.PIPE, text=True, check=True).stdout
            for need in re.findall(r"GLIBC_(\d+\.\d+)", symbols):
                key = "tally-run" if client else "tallyd"
                newest[key] = max(newest[key], version(need))
        self.assertEqual({key: version(text) for key, text in named.items()}, newest)
        self.assertLessEqual(newest["tally-run"], (2, 28))

    def test_every_library_has_its_licence(self):
        self.assertTrue(os.path.exists(os.path.join(self.top, "share/doc/tally/NOTICE")))
        licences = os.listdir(os.path.join(self.top, "share/doc/tally/licences"))
        for path in glob.glob(os.path.join(self.top, "lib/tally/carried/*")):
            if os.path.islink(path):
                continue
            found = subprocess.run(["dpkg-query", "-S", "*-linux-gnu/" + os.path.basename(path)], stdout=subprocess.PIPE,
                                   text=True, check=True).stdout
            self.assertIn(found.split(":")[0], licences, path)


class BadInput(unittest.TestCase):
    def assert_sentence(self, result, status, words):
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertIn(words, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_full_disk(self):
        for size in ("4m", "256k"):
            enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                     f'mount -t tmpfs -o size={size} none /mnt && exec "$@"', "sh"]
            if subprocess.run([*enter, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
                self.skipTest("a file system cannot be mounted without root's rights")
            self.assert_sentence(package("deb", "--output", "/mnt", enter=enter), 1, "there is no room left in '/mnt'")

    def test_directory_that_cannot_be_made(self):
        self.assert_sentence(package("--output", "/proc/nowhere"), 1, "'/proc/nowhere' cannot be made")

    def test_nothing_built(self):
        self.assert_sentence(package("--preset", "none"), 1, "build/none/CPackConfig.cmake is missing: build first")

    def test_unknown_word(self):
        self.assert_sentence(package("rpm"), 2, "unknown word 'rpm'")


if __name__ == "__main__":
    missing = not_built(PROGRAM, *(os.path.join(BUILD, "bin", name) for name in SHIPPED))
    if missing:
        print("SKIPPED ALL: not built:", ", ".join(missing))
    else:
        unittest.main(verbosity=2)
