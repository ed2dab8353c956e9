#!/usr/bin/env python3
"""tallyd with a scripted executor: adoption, control plane, metrics, configuration, directories, start."""
import contextlib
import json
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from support.daemon_fixture import (BEST_EFFORT, HIGH, VERSION, DaemonTest, Session, driver_table_hash, free_port,
                                    is_alive, program, wait_until)

ROOT = os.environ["TALLY_TEST_SOURCE"]
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 3, 8, 9


class Restart(DaemonTest):
    def test_killed_tallyd_leaves_sessions_and_the_next_adopts_them(self):
        first = self.start_daemon()
        high, low = self.session(priority=HIGH, tenant="a"), self.session(priority=BEST_EFFORT, tenant="b")
        before = {row["domain"]: row["pid"] for row in self.ctl_json("executors")}
        first.kill()
        first.wait()
        time.sleep(0.5)
        self.assertTrue(high.is_open() and low.is_open() and all(map(is_alive, before.values())))

        self.start_daemon()
        third = self.session(priority=BEST_EFFORT, tenant="c")
        self.assertGreater(third.id, low.id)
        rows = self.ctl_json("executors")
        self.assertEqual({row["domain"]: row["pid"] for row in rows}, before)  # nothing was started twice
        self.assertTrue(all(row["is_adopted"] for row in rows))
        sessions = self.ctl_json("ps")
        self.assertEqual({(row["id"], row["tenant"]) for row in sessions},
                         {(high.id, "a"), (low.id, "b"), (third.id, "c")})
        self.assertTrue(high.is_open() and low.is_open())

    def test_orderly_end_keeps_executors_with_sessions_and_ends_the_others(self):
        first = self.start_daemon("--executor-idle-seconds", "1")
        busy, other = self.session(priority=HIGH), self.session(priority=BEST_EFFORT)
        pids = {row["class"]: row["pid"] for row in self.ctl_json("executors")}
        other.close()
        wait_until(lambda: len(self.ctl_json("ps")) == 1, "one session left")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(60), 0)
        self.assertFalse(is_alive(pids["best-effort"]))
        self.assertTrue(is_alive(pids["high"]) and busy.is_open())
        self.assertFalse(os.path.exists(self.socket_path))
        # Without a tallyd, the end of its last session is the end of the executor.
        busy.close()
        wait_until(lambda: not is_alive(pids["high"]), "the orphaned idle executor ends")

    def test_second_daemon_on_the_same_socket_says_who_is_there(self):
        first = self.start_daemon()
        second = self.start_daemon(wait=False)
        self.assertIn(f"another tallyd (process {first.pid}) already serves", self.wait_for_failure(second))
        self.assertTrue(self.session().is_open())


class Control(DaemonTest):
    def test_set_priority(self):
        self.start_daemon()
        session, stubborn = self.session(priority=BEST_EFFORT), self.session(tenant="stubborn")
        self.assertEqual(self.ctl("set-priority", str(session.id), "high").returncode, 0)
        self.assertEqual({row["id"]: row["class"] for row in self.ctl_json("ps")},
                         {session.id: "high", stubborn.id: "best-effort"})
        refused = self.ctl("set-priority", str(stubborn.id), "high")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("the context of this domain is fixed", refused.stderr)
        unknown = self.ctl("set-priority", "999999", "high")
        self.assertEqual((unknown.returncode, unknown.stderr),
                         (1, "tallyctl: there is no session 999999: 'tallyctl ps' lists them\n"))
        self.assertEqual(self.ctl("set-priority", "1", "urgent").returncode, 2)

    def test_weights_and_levels(self):
        self.start_daemon("--policy", "tally")
        session, other = self.session(weight=300, level=2), self.session()
        shares = lambda: {row["id"]: (row["weight"], row["level"], row["class"]) for row in self.ctl_json("ps")}
        self.assertEqual(shares(), {session.id: (300, 2, "best-effort"), other.id: (100, 0, "best-effort")})
        self.assertEqual(self.ctl("set-weight", str(other.id), "50").returncode, 0)
        self.assertEqual(self.ctl("set-level", str(session.id), "7").returncode, 0)
        self.assertEqual(shares(), {session.id: (300, 7, "best-effort"), other.id: (50, 0, "best-effort")})
        for wrong in (("set-weight", "1", "0"), ("set-weight", "1", "10001"), ("set-level", "1", "8"),
                      ("set-level", "1", "-1")):
            self.assertEqual(self.ctl(*wrong).returncode, 2, wrong)
        self.assert_refused(INVALID_ARGUMENT, "a weight is from 1 to 10000", weight=10001)
        self.assert_refused(INVALID_ARGUMENT, "a level from 0 to 7", level=8)

    def test_no_daemon_is_one_sentence(self):
        result = self.ctl("ps")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^tallyctl: no tallyd serves '.*': start one with 'tallyd'.*\n$")
        # A socket file that nobody serves, as kill -9 leaves it.
        daemon = self.start_daemon()
        daemon.kill()
        daemon.wait()
        result = self.ctl("ps")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        self.assertIn("no tallyd answers", result.stderr)

    def test_version(self):
        daemon = self.start_daemon()
        row = self.ctl_json("version")
        self.assertEqual((row["pid"], row["protocol_version"], row["driver"], row["socket"]),
                         (daemon.pid, VERSION, "sim", self.socket_path))
        self.assertIn("tallyctl", self.ctl("version").stdout)

    def test_stuck_executor_is_shown_as_stale_within_a_bound(self):
        self.start_daemon()
        self.session()
        (executor,) = self.ctl_json("executors")
        os.kill(executor["pid"], signal.SIGSTOP)
        self.assertTrue(self.ctl_json_at_once("ps")[0]["is_stale"])
        os.kill(executor["pid"], signal.SIGCONT)
        wait_until(lambda: not self.ctl_json_at_once("ps")[0]["is_stale"], "it answers again")

    def test_what_a_stuck_executor_does_not_say_is_said_to_be_missing(self):
        self.start_daemon()
        self.session()
        (executor,) = self.ctl_json("executors")
        self.session(domain="another")
        # What it has of the executor that answers.
        lists = ((["kernels"], 1), (["graphs"], 1), (["window", "--shapes"], 0))
        for words, _ in lists:
            wait_until(lambda words=words: self.ctl(*words).stderr == "", "they answer in time")
        os.kill(executor["pid"], signal.SIGSTOP)
        for words, count in lists:
            shown = self.ctl("--json", *words)
            self.assertEqual((shown.returncode, len(json.loads(shown.stdout))), (0, count))
            self.assertEqual(shown.stderr, "tallyctl: an executor has not answered in time: what it has is missing here\n")
        os.kill(executor["pid"], signal.SIGCONT)

    def test_unknown_options_and_bad_configuration(self):
        for arguments, words in ((["--frobnicate"], "--frobnicate"), (["--driver", "magic"], "'magic' is no driver"),
                                 (["--metrics-address", "nonsense"], "HOST:PORT"), (["--config", "/nowhere"], "/nowhere"),
                                 (["--socket", "relative"], "absolute")):
            with self.subTest(arguments=arguments):
                result = subprocess.run([program("tallyd"), *arguments], stderr=subprocess.PIPE, text=True, timeout=60,
                                        check=False)
                self.assertEqual(result.returncode, 2)
                self.assertIn(words, result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertEqual(self.ctl("frobnicate").returncode, 2)

    def test_runtime_directory_that_others_can_write_is_refused(self):
        os.chmod(self.directory, 0o777)
        daemon = self.start_daemon(wait=False)
        self.assertIn("can be written by others", self.wait_for_failure(daemon))


class Metrics(DaemonTest):
    def test_pages_beside_the_metrics(self):
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")

        def get(path, method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            self.addCleanup(connection.close)
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()

        self.assertEqual(get("/healthz"), (200, "text/plain", "ok\n"))
        self.assertEqual(get("/healthz?verbose=1")[0], 200)
        self.assertEqual(get("/healthz", "HEAD")[::2], (200, ""))
        status, kind, page = get("/")
        self.assertEqual((status, kind), (200, "text/html"))
        for link in re.findall(r'href="([^"]+)"', page):
            self.assertEqual(get(link)[0], 200, link)
        self.assertIn('href="/metrics"', page)
        self.assertEqual(get("/metrics")[0], 200)
        for path in ("/nowhere", "/healthz/", "/metrics2", "/../etc/passwd"):
            self.assertEqual(get(path)[0], 404, path)
        self.assertNotEqual(get("/healthz", "POST")[0], 200)

    def test_counters_of_running_and_ended_sessions_never_go_down(self):
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")
        first = self.session(tenant="bert")
        labels = f'{{tenant="bert",uid="{os.getuid()}"}}'
        self.assertIn(f"tally_tenant_kernel_launches_total{labels} {first.id}", self.scrape_once_told(port))
        self.assertIn(f"tally_tenant_device_memory_bytes{labels} 4096", self.scrape(port))
        first.close()
        wait_until(lambda: not self.ctl_json("ps"), "the session is gone")
        page = self.scrape(port)
        self.assertIn(f"tally_tenant_kernel_launches_total{labels} {first.id}", page)
        self.assertIn(f"tally_tenant_device_memory_bytes{labels} 0", page)
        second = self.session(tenant="bert")
        self.assertIn(f"tally_tenant_kernel_launches_total{labels} {first.id + second.id}", self.scrape_once_told(port))
        self.assertIn('direction="host_to_device"} 2000', self.scrape(port))

    def test_every_figure_arrives_from_the_executor_under_its_own_name(self):
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")
        self.session(tenant="all-figures")
        with open(os.path.join(ROOT, "proto", "control", "session_figures.h"), encoding="utf-8") as file:
            names = [n for n in re.findall(r'^ +\{"([a-z_]+)",', file.read(), re.MULTILINE) if not n.startswith("tally_")]
        self.assertGreater(len(names), 25)
        (row,) = self.ctl_json("ps")
        row["preemptibility_ns"] = row["coverage"][0]["gpu_time_ns"]
        row["slo_caution"] *= 32
        self.assertEqual({name: row[name] for name in names}, {name: 1000 + i for i, name in enumerate(names)})
        page = self.scrape(port)
        for name, value in (("held_launches_total", "held_launches"), ("resumed_blocks_total", "resumed_blocks")):
            self.assertIn(f'tally_tenant_{name}{{tenant="all-figures",uid="{os.getuid()}"}} {row[value]}\n', page)
        with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as file:
            metrics = re.findall(r"^\| `(tally_tenant_\w+)`", file.read(), re.MULTILINE)
        self.assertGreater(len(metrics), 15)
        for name in metrics:
            self.assertRegex(page, rf'(?m)^{name}(_count)?\{{tenant="all-figures"')

    def test_connections_that_say_nothing_do_not_delay_a_scrape(self):
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")
        for _ in range(16):
            half_open = socket.create_connection(("127.0.0.1", port))
            self.addCleanup(half_open.close)
            half_open.send(b"GET /metrics HTTP/1.1\r\n")
        self.assertIn("tally_sessions", self.scrape(port))  # within 20 s; the library gives each of them 30

    def test_refusals_are_counted(self):
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")
        self.assert_refused(FAILED_PRECONDITION, "version", version=1)
        self.assertIn('tally_sessions_refused_total{reason="FAILED_PRECONDITION"} 1', self.scrape(port))

    def test_address_in_use_is_an_error_only_if_asked_for(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            daemon = self.start_daemon(metrics=f"127.0.0.1:{port}", wait=False)
            self.assertIn("cannot listen at", self.wait_for_failure(daemon))


class Idleness(DaemonTest):
    def test_idle_tallyd_and_executor_use_no_cpu(self):
        daemon = self.start_daemon(metrics=f"127.0.0.1:{free_port()}")
        self.session()
        (executor,) = self.ctl_json("executors")

        def cpu_ticks(pid):
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        before = cpu_ticks(daemon.pid)
        time.sleep(4)
        used = cpu_ticks(daemon.pid) - before
        # A hundredth of a core would be 4 ticks of 10 ms.
        self.assertLessEqual(used, 4)
        self.assertTrue(is_alive(executor["pid"]))


class Reload(DaemonTest):
    """SIGHUP: the file is read again."""

    def configure(self, **keys):
        path = os.path.join(self.directory, "tallyd.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(keys, file, indent=1)
        return path

    def hang_up(self, daemon, sentence):
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: sentence in self.log_of(daemon), sentence)

    def test_limits_change_at_once_and_policy_for_new_executors(self):
        daemon = self.start_daemon("--config", self.configure(max_sessions=2))
        first = self.session()
        self.session()
        self.assert_refused(RESOURCE_EXHAUSTED, "all 2 sessions")
        self.configure(max_sessions=3, policy="fair", default_priority="high")
        self.hang_up(daemon, "changed: default_priority, max_sessions; for executors started from now on: policy")
        self.session()
        self.assertTrue(first.is_open())
        rows = {row["domain"].split(":")[0]: row for row in self.ctl_json("executors")}
        self.assertEqual(set(rows), {"best-effort", "high"})
        with open(f"/proc/{rows['high']['pid']}/cmdline", encoding="ascii") as words:
            words = words.read().split("\0")
        self.assertEqual(words[words.index("--policy") + 1], "fair")

    def test_a_key_that_cannot_change_is_said_to_need_a_restart(self):
        daemon = self.start_daemon("--config", self.configure())
        self.configure(time_slice_us=7, share_contexts=True)
        self.hang_up(daemon, "only after a restart of tallyd: share_contexts, time_slice_us")

    def test_a_bad_file_leaves_everything_as_it_was(self):
        daemon = self.start_daemon("--config", self.configure(max_sessions=1))
        path = self.configure(max_sessions=2, polcy="fair")
        self.hang_up(daemon, f"nothing is changed: config file '{path}': line 3: unknown key 'polcy'")
        self.session()
        self.assert_refused(RESOURCE_EXHAUSTED, "all 1 sessions")
        os.unlink(path)
        self.hang_up(daemon, f"nothing is changed: cannot read the config file '{path}': No such file or directory")

    def test_other_users_are_let_in_and_shut_out(self):
        if os.getuid() != 0:
            self.skipTest("only root can become another user")
        daemon = self.start_daemon("--config", self.configure(allowed_uids=[0]))
        self.assertEqual(os.stat(self.socket_path).st_mode & 0o777, 0o600)
        self.configure(allowed_uids=[0, 54321])
        self.hang_up(daemon, "changed: allowed_uids")
        self.assertEqual(os.stat(self.socket_path).st_mode & 0o777, 0o666)
        self.assertEqual(os.stat(self.directory).st_mode & 0o777, 0o711)
        table = driver_table_hash()
        child = os.fork()
        if child == 0:
            os.setgid(54321)
            os.setuid(54321)
            try:
                Session(self.socket_path, table=table)
            except BaseException:  # pylint: disable=broad-except
                os._exit(1)
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_without_a_file_it_is_no_reason_to_end(self):
        daemon = self.start_daemon()
        self.hang_up(daemon, "nothing to read again without --config")
        self.assertTrue(self.session().is_open())


IN_A_POD = """
set -e
mount --make-rprivate /
mount --bind "$CLIENTS" "$INSIDE"
mount -o remount,bind,ro "$INSIDE"
mount -t tmpfs none "$DIRECTORY"
exec "$@"
"""
# What root tries there: connect, replace, make, list. It prints what it may.
AS_ROOT_IN_A_POD = """
import os, sys
sys.path.insert(0, sys.argv[1])
from support.daemon_fixture import Session
inside = sys.argv[2]
listener = inside + "/tally.sock"
print(Session(listener).is_open(), os.listdir(inside))
for attempt in (lambda: os.unlink(listener), lambda: os.rename(listener, inside + "/x"), lambda: open(inside + "/activity", "w"),
                lambda: os.symlink("x", inside + "/control.sock"), lambda: os.chmod(inside, 0o777)):
    try:
        attempt()
        print("done")
    except OSError as refused:
        print(refused.strerror)
"""


class ClientDirectory(DaemonTest):
    """The clients' socket lies in a directory of its own, which containers may have."""

    def setUp(self):
        super().setUp()
        self.clients = os.path.join(self.directory, "clients")

    def test_it_holds_nothing_else_and_the_old_path_leads_there(self):
        daemon = self.start_daemon("--allow-any-uid")
        self.session()
        self.assertEqual(os.listdir(self.clients), ["tally.sock"])
        self.assertEqual(os.readlink(self.socket_path), "clients/tally.sock")
        self.assertEqual(os.stat(self.clients).st_mode & 0o777, 0o711)
        self.assertIn("control.sock", os.listdir(self.directory))
        with contextlib.closing(Session(os.path.join(self.clients, "tally.sock"))) as other:
            self.assertTrue(other.is_open())
        for path in (self.socket_path, os.path.join(self.clients, "tally.sock")):
            result = subprocess.run([program("tallyctl"), "--socket", path, "ps"], stderr=subprocess.PIPE, check=False)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
        daemon.terminate()
        self.assertEqual(daemon.wait(60), 0)
        self.assertEqual((os.listdir(self.clients), os.path.lexists(self.socket_path)), ([], False))

    def test_the_same_by_either_name(self):
        link, self.socket_path = self.socket_path, os.path.join(self.clients, "tally.sock")
        self.start_daemon()
        self.session()
        self.assertEqual(os.listdir(self.clients), ["tally.sock"])
        with contextlib.closing(Session(link)) as other:
            self.assertTrue(other.is_open())

    def test_a_socket_that_an_older_tallyd_left_is_replaced(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as old:
            old.bind(self.socket_path)
        self.start_daemon()
        self.assertTrue(self.session().is_open())

    def test_root_in_a_pod_can_connect_and_nothing_else(self):
        can = subprocess.run(["unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount -t tmpfs none /mnt"],
                             stderr=subprocess.PIPE, text=True, check=False)
        if can.returncode != 0:
            self.skipTest("no mount namespace: " + can.stderr.strip())
        inside = tempfile.mkdtemp(prefix="tally-test-pod-")
        self.addCleanup(os.rmdir, inside)
        self.start_daemon()
        tests = os.path.dirname(os.path.abspath(__file__))
        result = subprocess.run(["unshare", "-m", "sh", "-c", IN_A_POD, "sh", sys.executable, "-c", AS_ROOT_IN_A_POD, tests,
                                 inside], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=90,
                                env={**os.environ, "CLIENTS": self.clients, "INSIDE": inside, "DIRECTORY": self.directory})
        self.assertEqual(result.stdout.splitlines(), ["True ['tally.sock']"] + ["Read-only file system"] * 5, result.stderr)
        self.assertTrue(self.session().is_open())


class ForeignDirectories(DaemonTest):
    """What another user could replace is not used, and one sentence says which and what to do."""

    def test_a_parent_of_the_runtime_directory(self):
        shared = os.path.join(self.directory, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o777)
        self.socket_path = os.path.join(shared, "tally", "tally.sock")
        text = self.wait_for_failure(self.start_daemon(wait=False))
        self.assertIn(f"'{shared}' can be written by others", text)
        self.assertIn(f"chmod go-w '{shared}'", text)
        self.assertEqual(text.count("\n"), 1)
        os.chmod(shared, 0o1777)  # as /tmp
        self.start_daemon()

    def test_a_cache_directory_is_done_without(self):
        cache = os.path.join(self.directory, "cache")
        os.mkdir(cache)
        os.chmod(cache, 0o777)
        daemon = self.start_daemon("--cache-directory", cache)
        self.assertIn(f"going on without the cache directory '{cache}'", self.log_of(daemon))
        self.session()
        (row,) = self.ctl_json("executors")
        with open(f"/proc/{row['pid']}/cmdline", encoding="ascii") as words:
            self.assertNotIn(cache, words.read())


class SocketActivation(DaemonTest):
    """tally.socket: the service manager makes the clients' socket and passes it as descriptor 3."""

    def listening(self, path=None, kind=socket.SOCK_SEQPACKET, backlog=8):
        made = socket.socket(socket.AF_UNIX, kind)
        self.addCleanup(made.close)
        made.bind(path or self.socket_path)
        if backlog:
            made.listen(backlog)
        return made

    def activate(self, *sockets):
        """tallyd as systemd starts it. The shell puts the descriptors where they belong and knows the process's id."""
        command = [program("tallyd"), "--socket", self.socket_path, "--driver", "sim", "--metrics-address", "0",
                   "--executor", self.executor]
        places = "".join(f" {3 + i}<&{made.fileno() + 50}" for i, made in enumerate(sockets))
        for made in sockets:
            os.dup2(made.fileno(), made.fileno() + 50)
        path = os.path.join(self.directory, f"daemon-{len(self.daemons)}.log")
        with open(path, "wb") as log:
            daemon = subprocess.Popen(["bash", "-c", f'LISTEN_PID=$$ LISTEN_FDS={len(sockets)} exec "$@"{places}', "bash",
                                       *command], pass_fds=[made.fileno() + 50 for made in sockets], stderr=log)
        for made in sockets:
            os.close(made.fileno() + 50)
        daemon.log_path = path
        self.daemons.append(daemon)
        return daemon

    def test_a_client_that_came_before_tallyd_is_served_and_the_socket_stays(self):
        listener = self.listening()
        early = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(early.close)
        early.connect(self.socket_path)
        early.send(b"x")
        daemon = self.activate(listener)
        early.settimeout(60)
        self.assertIn(b"does not speak Tally's protocol", early.recv(4096))
        self.assertTrue(self.session().is_open())
        inode = os.stat(self.socket_path).st_ino
        daemon.terminate()
        self.assertEqual(daemon.wait(60), 0)
        self.assertEqual(os.stat(self.socket_path).st_ino, inode)
        self.activate(listener)  # as systemd does for the next client
        self.assertTrue(self.session().is_open())

    def test_a_socket_in_the_clients_directory(self):
        os.mkdir(os.path.join(self.directory, "clients"))
        place = os.path.join(self.directory, "clients", "tally.sock")
        listener = self.listening(place)
        early = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(early.close)
        early.connect(place)  # waits until it is served
        early.send(b"x")
        daemon = self.activate(listener)
        early.settimeout(60)
        self.assertIn(b"does not speak Tally's protocol", early.recv(4096))
        self.assertTrue(self.session().is_open())  # by the link
        daemon.terminate()
        self.assertEqual(daemon.wait(60), 0)
        self.assertEqual(os.readlink(self.socket_path), "clients/tally.sock")  # the socket is there, too

    def test_a_socket_activated_twice_is_one_sentence(self):
        listener = self.listening()
        first = self.activate(listener)
        self.assertTrue(self.session().is_open())
        text = self.wait_for_failure(self.activate(listener))
        self.assertIn(f"another tallyd (process {first.pid}) already serves", text)
        self.assertEqual(text.count("\n"), 1)
        self.assertTrue(self.session().is_open())

    def test_sockets_that_do_not_fit_are_one_sentence_each(self):
        other = os.path.join(self.directory, "other.sock")
        for sockets, words in (
                ([self.listening(), self.listening(other)], "passed 2 sockets and tallyd serves one"),
                ([self.listening(other + "2")], f"another path than '{self.directory}/clients/tally.sock'"),
                ([self.listening(other + "3", socket.SOCK_STREAM)], "tally.socket must say ListenSequentialPacket="),
                ([self.listening(other + "4", socket.SOCK_DGRAM, backlog=0)], "no listening UNIX socket"),
                ([self.listening(other + "5", backlog=0)], "no listening UNIX socket")):
            with self.subTest(words):
                text = self.wait_for_failure(self.activate(*sockets))
                self.assertIn(words, text)
                self.assertEqual(text.count("\n"), 1)

    def test_executors_inherit_nothing_of_it(self):
        self.activate(self.listening())
        self.session()
        (row,) = self.ctl_json("executors")
        with open(f"/proc/{row['pid']}/environ", "rb") as variables:
            self.assertNotIn(b"LISTEN_", variables.read())


class Readiness(DaemonTest):
    def test_service_manager_is_told(self):
        path = os.path.join(self.directory, "notify.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(60)
            config = os.path.join(self.directory, "tallyd.json")
            with open(config, "w", encoding="utf-8") as file:
                file.write("{}")
            daemon = self.start_daemon("--config", config, env={"NOTIFY_SOCKET": path})
            self.assertTrue(manager.recv(4096).startswith(b"READY=1\n"))
            daemon.send_signal(signal.SIGHUP)
            self.assertEqual(manager.recv(4096), b"RELOADING=1")
            self.assertEqual(manager.recv(4096), b"READY=1")
            daemon.send_signal(signal.SIGINT)
            self.assertEqual(manager.recv(4096), b"STOPPING=1")
            self.assertEqual(daemon.wait(60), 0)

    def test_lines_have_the_journal_s_levels_where_stderr_is_the_journal(self):
        path = os.path.join(self.directory, "journal")
        with open(path, "wb") as journal:
            state = os.fstat(journal.fileno())
            daemon = subprocess.Popen([program("tallyd"), "--socket", self.socket_path, "--driver", "auto",
                                       "--metrics-address", "0", "--executor", self.executor], stderr=journal,
                                      env={**os.environ, "JOURNAL_STREAM": f"{state.st_dev}:{state.st_ino}"})
        daemon.log_path = path
        self.daemons.append(daemon)
        wait_until(lambda: f"<6>tallyd[{daemon.pid}] I " in self.log_of(daemon), "an informational line")
        failed = subprocess.run([program("tallyd"), "--config", "/nowhere"], stderr=subprocess.PIPE, check=False,
                                env={**os.environ, "JOURNAL_STREAM": f"{state.st_dev}:{state.st_ino}"})
        self.assertTrue(failed.stderr.startswith(b"tallyd: "), "a pipe is not that journal")


if __name__ == "__main__":
    unittest.main(verbosity=2)
