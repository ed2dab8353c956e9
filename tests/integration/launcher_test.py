#!/usr/bin/env python3
"""tally-run: what the program sees, what the shell sees, and what is left behind (nothing)."""
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support.daemon_fixture import OPEN_SESSION, SCRIPTED_EXECUTOR, DaemonTest, is_alive, program, wait_until
from support.terminal import Terminal

EMPTY_CLIENT = os.environ["TALLY_TEST_EMPTY_CLIENT"]


class LauncherTest(DaemonTest):
    """An installation of its own: the real programs, a scripted executor, an empty client library."""

    def setUp(self):
        super().setUp()
        self.bin = os.path.join(self.directory, "installed", "bin")
        self.client = os.path.join(self.directory, "installed", "lib", "tally", "client")
        self.runtime = os.path.join(self.directory, "runtime")
        for path in (self.bin, self.client, self.runtime):
            os.makedirs(path)
        os.chmod(self.runtime, 0o700)
        for name in ("tally-run", "tallyd"):
            shutil.copy(program(name), self.bin)
        shutil.copy(SCRIPTED_EXECUTOR, os.path.join(self.bin, "tally-executor"))
        shutil.copy(EMPTY_CLIENT, os.path.join(self.client, "libcuda.so.1"))
        os.symlink("libcuda.so.1", os.path.join(self.client, "libcuda.so"))
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith("TALLY_")}
        self.environment["XDG_RUNTIME_DIR"] = self.runtime

    def command(self, *arguments):
        return [os.path.join(self.bin, "tally-run"), *arguments]

    def run_it(self, *arguments, env=None, **options):
        return subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=80, env={**self.environment, **(env or {})}, check=False, **options)

    def ours(self, name=""):
        """Processes of this installation, except tests', of all its programs or the one of that name."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                path = os.readlink(f"/proc/{pid}/exe")
                if path.startswith(self.bin) and path.endswith(name) and is_alive(pid):
                    found.append(int(pid))
            except OSError:
                pass
        return found

    def assert_nothing_left(self):
        wait_until(lambda: not self.ours(), "no process is left")
        wait_until(lambda: not os.listdir(self.runtime), "no file is left")


class Embedded(LauncherTest):
    def test_output_and_status_are_the_programs(self):
        result = self.run_it("--embedded", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((result.returncode, result.stdout), (7, "out\n"))
        self.assertEqual(result.stderr.splitlines()[-1], "err")
        self.assert_nothing_left()

    def test_says_in_one_line_that_there_is_no_gpu_unless_quiet(self):
        if any(name.startswith("nvidia") for name in os.listdir("/dev")):
            self.skipTest("this machine has a GPU")
        result = self.run_it("--embedded", "true")
        self.assertEqual(result.stderr, "tally-run: using the software driver (no NVIDIA GPU in /dev)\n")
        self.assertEqual(self.run_it("--embedded", "--quiet", "true").stderr, "")
        self.assertEqual(self.run_it("--embedded", "--driver", "sim", "true").stderr, "")  # as asked

    def test_death_by_signal_is_passed_on(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
            with self.subTest(signal=number):
                self.assertEqual(self.run_it("--embedded", "sh", "-c", f"kill -{int(number)} $$").returncode, -number)
        self.assert_nothing_left()

    def test_signals_of_other_processes_reach_the_program(self):
        for number, status in ((signal.SIGTERM, 42), (signal.SIGINT, 43), (signal.SIGUSR1, 44)):
            with self.subTest(signal=number):
                run = subprocess.Popen(
                    self.command("--embedded", "--quiet", "sh", "-c",
                                 "trap 'exit 42' TERM; trap 'exit 43' INT; trap 'exit 44' USR1; echo in; "
                                 "while :; do sleep 0.05; done"),
                    env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(run.stdout.readline(), b"in\n")
                run.send_signal(number)
                self.assertEqual(run.wait(80), status)
                run.communicate()
        self.assert_nothing_left()

    def test_a_key_of_the_terminal_reaches_the_program_once(self):
        counts = ("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); print('in', flush=True); number = 0\n"
                  "while signal.sigtimedwait([signal.SIGINT], 1 if number else 60): number += 1\n"
                  "print('asked', number, 'times')")
        terminal = Terminal(*self.command("--embedded", "--quiet", sys.executable, "-c", counts),
                            env={**{name: None for name in os.environ}, **self.environment})
        self.addCleanup(terminal.close)
        terminal.wait_for("in")
        terminal.type("\x03")
        terminal.wait_for("asked 1 times")
        self.assert_nothing_left()

    def test_killed_launcher_takes_everything_along(self):
        run = subprocess.Popen(self.command("--embedded", "--quiet", "sh", "-c", "echo $$; exec sleep 100"),
                               env=self.environment, stdout=subprocess.PIPE)
        program_pid = int(run.stdout.readline())
        self.assertGreaterEqual(len(self.ours()), 2)
        run.kill()
        run.communicate()
        wait_until(lambda: not is_alive(program_pid), "the program ends too")
        self.assert_nothing_left()

    def test_what_is_left_when_the_daemon_is_killed_too_the_next_one_removes(self):
        run = subprocess.Popen(self.command("--embedded", "--quiet", "sh", "-c", "echo; exec sleep 100"),
                               env=self.environment, stdout=subprocess.PIPE)
        run.stdout.readline()
        (left,) = os.listdir(self.runtime)
        os.mkdir(os.path.join(self.runtime, "tally-run-notold"), mode=0o700)  # of one that is about to start
        os.symlink(self.directory, os.path.join(self.runtime, "tally-run-a-link"))
        for pid in self.ours():
            os.kill(pid, signal.SIGSTOP)  # nobody sees another's end
        for pid in self.ours():
            os.kill(pid, signal.SIGKILL)
        run.communicate()

        def is_free():  # a process that ends has no executable any more before it closes its files
            with open(os.path.join(self.runtime, left, "tallyd.lock"), "rb") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False

        self.assertIn("tallyd.lock", os.listdir(os.path.join(self.runtime, left)))
        wait_until(lambda: not self.ours() and is_free(), "all are gone")
        self.assertEqual(self.run_it("--embedded", "--quiet", "true").returncode, 0)
        self.assertEqual(sorted(os.listdir(self.runtime)), ["tally-run-a-link", "tally-run-notold"])
        os.utime(os.path.join(self.runtime, "tally-run-notold"), (0, 0))
        self.assertEqual(self.run_it("--embedded", "--quiet", "true").returncode, 0)
        self.assertEqual(os.listdir(self.runtime), ["tally-run-a-link"])

    def test_the_directory_of_one_that_runs_is_left_alone(self):
        run = subprocess.Popen(self.command("--embedded", "--quiet", "sh", "-c", "echo; read x; test -S $TALLY_SOCKET"),
                               env=self.environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        run.stdout.readline()
        self.assertEqual(self.run_it("--embedded", "--quiet", "true").returncode, 0)
        run.communicate(b"\n")
        self.assertEqual(run.returncode, 0)
        self.assert_nothing_left()

    def test_program_gets_a_session_of_a_private_daemon(self):
        result = self.run_it("--embedded", "--quiet", "--driver", "sim", *OPEN_SESSION, env={"TALLY_TEST_BIN": self.bin},
                             stdin=subprocess.DEVNULL)
        self.assertEqual(result.stdout, "1 True 0o40700\n", result.stderr)
        self.assert_nothing_left()

    def test_executors_of_a_private_daemon_end_with_it(self):
        run = subprocess.Popen(self.command("--embedded", "--quiet", "--driver", "sim", *OPEN_SESSION),
                               env={**self.environment, "TALLY_TEST_BIN": self.bin}, stdout=subprocess.PIPE, stdin=subprocess.PIPE,
                               text=True)
        self.assertTrue(run.stdout.readline().startswith("1 True"))
        self.assertEqual(len(self.ours("/tally-executor")), 1)
        (daemon,) = self.ours("/tallyd")
        os.kill(daemon, signal.SIGKILL)
        # Though its program is still there.
        wait_until(lambda: not self.ours("/tally-executor"), "the executor ends, too")
        run.communicate("")

    def test_daemon_that_cannot_start_is_one_more_sentence(self):
        os.unlink(os.path.join(self.bin, "tally-executor"))
        result = self.run_it("--embedded", "echo", "never")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("no executor program", result.stderr)
        self.assertIn("tally-run: the private tallyd could not start", result.stderr)
        self.assert_nothing_left()


class Shared(LauncherTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.environment["TALLY_SOCKET"] = self.socket_path

    def test_becomes_the_program(self):
        run = subprocess.Popen(self.command("sh", "-c", "echo $$"), env=self.environment, stdout=subprocess.PIPE)
        output, _ = run.communicate(timeout=80)
        self.assertEqual(int(output), run.pid)

    def test_environment_of_the_program(self):
        result = self.run_it("--priority", "high", "--domain", "mine", "--name", "bert", "env",
                             env={"LD_LIBRARY_PATH": "/other/place", "LD_PRELOAD": ""})
        variables = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        self.assertEqual(variables["LD_LIBRARY_PATH"], self.client + ":/other/place")
        self.assertEqual(variables["LD_PRELOAD"], self.client + "/libcuda.so.1")
        self.assertEqual(variables["TRITON_LIBCUDA_PATH"], self.client)
        self.assertEqual([variables[name] for name in ("TALLY_SOCKET", "TALLY_PRIORITY", "TALLY_DOMAIN", "TALLY_NAME")],
                         [self.socket_path, "high", "mine", "bert"])

    def test_window_has_a_value_behind_an_equals_sign_or_none(self):
        for said, asked in ((["--window"], None), (["--window=on"], "off"), (["--window=shadow"], None), (["--window=off"], "on"),
                            ([], "shadow"), ([], None), ([], "")):
            with self.subTest(said=said, asked=asked):
                result = self.run_it(*said, "sh", "-c", "echo ${TALLY_WINDOW:-none} $1", "sh", "--window=off",
                                     env={} if asked is None else {"TALLY_WINDOW": asked})
                expected = (said[0].partition("=")[2] or "on") if said else asked or "none"
                self.assertEqual((result.returncode, result.stdout), (0, f"{expected} --window=off\n"), result.stderr)

    def test_graphs_are_said_by_option_or_environment(self):
        for said, asked, expected in ((["--graphs", "off"], "partitions", "off"), (["--graphs=partitions"], None, "partitions"),
                                      ([], "off", "off"), ([], None, "none")):
            with self.subTest(said=said, asked=asked):
                result = self.run_it(*said, "sh", "-c", "echo ${TALLY_GRAPHS:-none}",
                                     env={} if asked is None else {"TALLY_GRAPHS": asked})
                self.assertEqual((result.returncode, result.stdout), (0, f"{expected}\n"), result.stderr)

    def test_library_is_loaded_and_tally_run_under_tally_run_changes_nothing(self):
        result = self.run_it(*self.command("sh", "-c", "echo $LD_PRELOAD; grep -c libcuda.so.1 /proc/$$/maps"))
        preload, mappings = result.stdout.splitlines()
        self.assertEqual(preload, self.client + "/libcuda.so.1")
        self.assertGreater(int(mappings), 0)

    def test_options_behind_the_program_are_its_own(self):
        for separator in ([], ["--"]):
            result = self.run_it("--priority", "high", *separator, "echo", "--help", "--priority", "low", "--", "x")
            self.assertEqual(result.stdout, "--help --priority low -- x\n", result.stderr)


class Mistakes(LauncherTest):
    def assert_sentence(self, status, words, *arguments, env=None):
        result = self.run_it(*arguments, env=env)
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        self.assertIn(words, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("tally-run: "))

    def test_usage(self):
        self.assert_sentence(2, "there is no option '--frobnicate'", "--frobnicate", "true")
        self.assert_sentence(2, "say which program")
        self.assert_sentence(2, "'urgent' is no priority", "--priority", "urgent", "true")
        self.assert_sentence(2, "'urgent' is no priority", "true", env={"TALLY_PRIORITY": "urgent"})
        self.assert_sentence(2, "'wide' is no window: say off, shadow or on", "--window=wide", "true")
        self.assert_sentence(2, "'1' is no window: say off, shadow or on", "true", env={"TALLY_WINDOW": "1"})
        self.assert_sentence(2, "'segments' is no way to launch graphs: say off, partitions or spread", "--graphs", "segments", "true")
        self.assert_sentence(2, "'1' is no way to launch graphs", "true", env={"TALLY_GRAPHS": "1"})
        for weight in ("0", "10001", "-1", "many"):
            self.assert_sentence(2, f"'{weight}' is no weight: say a number from 1 to 10000", f"--weight={weight}", "true")
        self.assert_sentence(2, "no domain's name", "--domain", "a/b", "true")
        self.assert_sentence(2, "--driver goes with --embedded", "--driver", "sim", "true")
        self.assert_sentence(2, "'magic' is no driver", "--embedded", "--driver", "magic", "true")
        self.assert_sentence(2, "drop --socket", "--embedded", "--socket", "/x", "true")

    def test_program(self):
        self.assert_sentence(127, "there is no program 'no-such-program'", "--embedded", "no-such-program")
        self.assert_sentence(127, "No such file", "--embedded", "./no-such-program")
        self.assert_sentence(126, "it is a directory", "--embedded", "/usr")
        plain = os.path.join(self.directory, "plain")
        with open(plain, "w", encoding="ascii") as file:
            file.write("no program\n")
        self.assert_sentence(126, "not an executable file", "--embedded", plain)
        os.chmod(plain, 0o755)
        self.assert_sentence(126, "neither a program nor a script", "--embedded", "--quiet", plain)
        self.assert_nothing_left()

    def test_no_daemon(self):
        self.assert_sentence(1, "start one with 'tallyd &', or use tally-run --embedded", "true",
                             env={"TALLY_SOCKET": os.path.join(self.directory, "nobody.sock")})
        self.assert_sentence(1, "no tallyd serves '/nowhere/tally.sock'", "--socket", "/nowhere/tally.sock", "true")

    def test_daemon_that_is_not_open_to_us(self):
        if os.getuid() != 0:
            self.skipTest("only root can become another user")
        os.chmod(self.directory, 0o711)
        self.start_daemon("--allow-uid", "0")

        def become_another():
            os.setgid(54321)
            os.setuid(54321)

        result = self.run_it("true", env={"TALLY_SOCKET": self.socket_path}, preexec_fn=become_another)
        self.assertEqual(result.returncode, 1)
        self.assertIn("belongs to another user", result.stderr)

    def test_daemon_of_another_user_in_our_own_place_is_not_trusted(self):
        if os.getuid() != 0:
            self.skipTest("only root can become another user")
        os.makedirs(os.path.join(self.runtime, "tally"))
        for path in (self.runtime, os.path.join(self.runtime, "tally")):
            os.chown(path, 54321, 54321)
        os.chmod(self.directory, 0o755)

        def become(uid):
            def change():
                os.setgid(uid)
                os.setuid(uid)
            return change

        daemon = subprocess.Popen(
            [os.path.join(self.bin, "tallyd"), "--socket", os.path.join(self.runtime, "tally", "tally.sock"),
             "--metrics-address", "0", "--allow-any-uid"], preexec_fn=become(54321), stderr=subprocess.DEVNULL)
        self.daemons.append(daemon)
        wait_until(lambda: os.path.exists(os.path.join(self.runtime, "tally", "tally.sock")), "it listens")
        os.chmod(self.runtime, 0o755)
        result = self.run_it("true", preexec_fn=become(54322))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("is run by user 54321, not by you", result.stderr)

    def test_missing_daemon(self):
        os.unlink(os.path.join(self.bin, "tallyd"))
        self.assert_sentence(1, "--embedded needs the daemon", "--embedded", "true")
        self.assert_nothing_left()

    def test_missing_client_library(self):
        os.unlink(os.path.join(self.client, "libcuda.so.1"))
        self.assert_sentence(1, "Tally's libcuda.so.1 is not in", "--embedded", "true")

    def test_programs_that_cannot_load_the_library_are_pointed_out(self):
        plain = os.path.join(self.directory, "rights")
        shutil.copy(shutil.which("true"), plain)
        if os.getuid() == 0:
            os.chown(plain, 54321, 54321)
            os.chmod(plain, 0o4755)
            result = self.run_it("--embedded", "--quiet", plain)
            self.assertEqual(result.returncode, 0)
            self.assertIn("warning: ", result.stderr)
            self.assertIn("set-user-id", result.stderr)


class ProgramsThatCannotLoadTheLibrary(LauncherTest):
    """Real ones, by the compilers and tools that make them."""

    def make(self, name, *command, source="int main(void) { return 0; }"):
        path = os.path.join(self.directory, name)
        subprocess.run([*command, "-o", path, "-x", "c", "-"], input=source, text=True, check=True)
        return path

    def script(self, name, first_line):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(first_line + "\n")
        os.chmod(path, 0o755)
        return path

    def with_loader(self, name, loader):
        path = self.make(name, "cc")
        subprocess.run(["patchelf", "--set-interpreter", loader, path], check=True)
        return path

    def assert_refused(self, words, *command, env=None):
        for options in (["--embedded"], ["--socket", "/nowhere"]):  # said before anything is started or asked
            result = self.run_it(*options, *command, env=env)
            self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
            self.assertIn(words, result.stderr)
            self.assertRegex(result.stderr, r"^tally-run: cannot run '[^\n]*\n$")

    def test_static(self):
        for option in ("-static", "-static-pie"):
            self.assert_refused("statically linked", self.make("static" + option, "cc", option))

    def test_musl(self):
        self.assert_refused("built for musl", self.make("musl", "musl-gcc"))

    def test_32_bit(self):
        program_of_1995 = self.make("small", "cc", "-m32", "-nostdlib", "-static", source="void _start(void) { for (;;); }")
        self.assert_refused("32-bit", program_of_1995)

    def test_loader_that_is_not_there(self):
        self.assert_refused("its loader '/nowhere/ld.so' cannot be started", self.with_loader("moved", "/nowhere/ld.so"))

    def test_loader_that_cannot_load_the_library(self):
        """musl's, under another name: the library's own loader is what it lacks first."""
        loader = os.path.join(self.directory, "ld-own.so")
        shutil.copy(os.path.realpath("/lib/ld-musl-x86_64.so.1"), loader)
        library = os.path.join(self.client, "libcuda.so.1")
        subprocess.run(["cc", "-shared", "-o", library, "-x", "c", "-"], check=True, text=True,
                       input="int gnu_get_libc_version(void); int f(void) { return gnu_get_libc_version(); }")
        self.assert_refused("cannot load Tally's driver library, which needs glibc 2.28 or newer; it says: ",
                            self.with_loader("own", loader))

    def test_loader_that_is_as_good_as_the_systems(self):
        loader = os.path.join(self.directory, "ld-copy.so")
        shutil.copy("/lib64/ld-linux-x86-64.so.2", loader)
        result = self.run_it("--embedded", "--quiet", self.with_loader("moved", loader))
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_loader_as_the_program(self):
        self.assert_refused("name the program itself", "/lib64/ld-linux-x86-64.so.2", shutil.which("true"))

    def test_scripts_of_such_programs(self):
        static = self.make("static", "cc", "-static")
        self.assert_refused(f"'{static}' under Tally: it is statically linked", self.script("direct", "#!" + static))
        self.assert_refused("statically linked", self.script("by-name", "#!/usr/bin/env static"),
                            env={"PATH": self.directory + ":" + os.environ["PATH"]})


if __name__ == "__main__":
    unittest.main(verbosity=2)
