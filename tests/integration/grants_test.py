#!/usr/bin/env python3
"""tallyd with a scripted executor: tenants by grant, and what is tried against them."""
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import unittest

from support.daemon_fixture import (BEST_EFFORT, HIGH, DaemonTest, Refused, Session, as_user, connected, free_port,
                                    hello, is_alive, program, wait_until)

INVALID_ARGUMENT, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 3, 7, 8


class GrantTest(DaemonTest):
    def grant(self, tenant, *arguments):
        """The socket of a new grant."""
        made = self.ctl("grant", "create", tenant, *arguments)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        path = made.stdout.strip()
        self.assertEqual(path, os.path.join(self.directory, "grants", tenant, "tally.sock"))
        return path

    def by(self, path, **arguments):
        session = Session(path, **arguments)
        self.addCleanup(session.close)
        return session

    def connect_by(self, path):
        connection = connected(path)
        self.addCleanup(connection.close)
        return connection

    def tenants(self):
        return {row["tenant"]: row for row in self.ctl_json("grant", "list")}

    def assert_refused_by(self, path, code, words, **arguments):
        with self.assertRaises(Refused) as caught:
            self.by(path, **arguments)
        self.assertEqual(caught.exception.code, code, caught.exception.sentence)
        self.assertIn(words, caught.exception.sentence)

    def assert_no_grant(self, words, *arguments, status=1):
        before = self.tenants()
        refused = self.ctl("grant", "create", *arguments)
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (status, 1), refused.stderr)
        self.assertIn(words, refused.stderr)
        self.assertEqual(self.tenants(), before, "nothing is lost")

    def configure(self, **keys):
        path = os.path.join(self.directory, "tallyd.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(keys, file)
        return path


class Identity(GrantTest):
    def test_whoever_connects_there_is_that_tenant(self):
        self.start_daemon()
        path = self.grant("team-a", "--priority", "high", "--memory", "8M", "--namespace", "blue", "--pod", "p-0")
        session = self.by(path, tenant="I am somebody else")
        (row,) = self.ctl_json("ps")
        self.assertEqual((row["id"], row["tenant"], row["class"], row["domain"]),
                         (session.id, "team-a", "high", "high@team-a"))
        self.assertEqual((row["namespace"], row["pod"], row["container"]), ("blue", "p-0", ""))
        self.assertEqual((row["pid"], row["uid"]), (os.getpid(), os.getuid()), "what the kernel says of it stays")
        self.assertEqual(row["device_memory_limit_bytes"], 8 << 20)
        self.assertEqual(self.tenants()["team-a"]["sessions"], 1)
        self.assertRegex(self.ctl("grant", "list").stdout, r"team-a +high +100 +0 +8\.0 MiB +- +tenant +blue/p-0 +1 +tallyctl")

    def test_a_program_may_lower_its_class_and_not_raise_it(self):
        port = free_port()
        daemon = self.start_daemon(metrics=f"127.0.0.1:{port}")
        low, high = self.grant("low"), self.grant("top", "--priority", "high")
        self.assert_refused_by(low, PERMISSION_DENIED, "tenant 'low' may not run high-priority programs", priority=HIGH)
        self.assert_refused_by(low, PERMISSION_DENIED, "tenant 'low'", domain="high")
        self.by(low)
        self.by(high, priority=BEST_EFFORT)
        self.by(high)
        self.assertEqual([(row["tenant"], row["class"]) for row in self.ctl_json("ps")],
                         [("low", "best-effort"), ("top", "best-effort"), ("top", "high")])
        self.assertRegex(self.log_of(daemon), r"refused a session to process \d+ of user \d+, tenant 'low': tenant 'low'")
        self.assertIn('tally_grant_sessions_refused_total{tenant="low",reason="PERMISSION_DENIED"} 2', self.scrape(port))

    def test_nor_its_weight_or_level(self):
        self.start_daemon("--policy", "tally")
        path = self.grant("shared", "--weight", "200", "--priority", "high", "--level", "3")
        self.assert_refused_by(path, PERMISSION_DENIED, "has weight 200 and level 3", weight=201)
        self.assert_refused_by(path, PERMISSION_DENIED, "has weight 200 and level 3", level=4)
        for words in ({}, {"priority": BEST_EFFORT}, {"level": 2}, {"weight": 50, "priority": BEST_EFFORT}):
            self.by(path, **words)
        self.assertEqual([(row["class"], row["weight"], row["level"]) for row in self.ctl_json("ps")],
                         [("high", 100, 3), ("best-effort", 200, 0), ("high", 100, 2), ("best-effort", 50, 0)])

    def test_two_tenants_of_one_user_share_no_fault(self):
        daemon = self.start_daemon()
        quiet, faulty = self.by(self.grant("quiet")), self.grant("fault")  # which the scripted executor takes as an order
        num_faults = lambda: self.log_of(daemon).count("lost its context")

        def fault():
            before = num_faults()
            self.by(faulty)
            wait_until(lambda: num_faults() > before, "the fault is known")
            self.assertTrue(quiet.is_open())

        def has_waited():
            self.by(self.grant(f"after-{num_faults()}"))
            self.assertNotIn("in a row", self.log_of(daemon))
            fault()
            return re.search(r"tenant fault: \d+ executors in a row have failed: the next starts in \d+ ms", self.log_of(daemon))

        fault()
        fault()
        # Nor its pause after two faults: another tenant of the same user starts at once, it itself does not. On a busy machine
        # the pause may be over by then: after each fault it is twice as long.
        wait_until(has_waited, "it itself waits", 100)

    def test_domain_policies(self):
        self.start_daemon()
        paths = [self.grant("a", "--namespace", "blue", "--domain", "namespace"),
                 self.grant("b", "--namespace", "blue", "--domain", "namespace"),
                 self.grant("c", "--namespace", "red", "--domain", "namespace"),
                 self.grant("d", "--namespace", "blue"), self.grant("e", "--domain", "shared"),
                 self.grant("f", "--domain", "shared")]
        for path in paths:
            self.by(path)
        self.session()
        domains = [row["domain"] for row in self.ctl_json("ps")]
        self.assertEqual(domains, ["best-effort@namespace/blue", "best-effort@namespace/blue", "best-effort@namespace/red",
                                   "best-effort@d", "best-effort@shared/all", "best-effort@shared/all",
                                   f"best-effort:{os.getuid()}"])
        self.assertEqual(len({row["executor_pid"] for row in self.ctl_json("ps")}), 5)
        self.assert_no_grant("needs the grant's namespace", "g", "--domain", "namespace")
        self.grant("limited", "--domain", "shared", "--memory", "1G")  # a quota goes with every domain

    def test_a_program_cannot_name_a_domain_of_another_tenant(self):
        self.start_daemon()
        path = self.grant("victim")
        self.by(path)
        other = self.grant("other")
        for name in ("best-effort@victim", "@victim", "shared/all"):
            self.assert_refused_by(other, INVALID_ARGUMENT, "a domain's name is made of", domain=name)
            self.assert_refused(INVALID_ARGUMENT, "a domain's name is made of", domain=name)
        self.by(other, domain="victim")
        self.assertEqual(len({row["executor_pid"] for row in self.ctl_json("ps")}), 2)

    def test_a_program_that_takes_a_tenants_name_is_not_that_tenant(self):
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")
        self.by(self.grant("team-a"))
        self.session(tenant="team-a")
        page = self.scrape_once_told(port)
        for uid in ("grant", os.getuid()):
            self.assertIn(f'tally_tenant_device_memory_bytes{{tenant="team-a",uid="{uid}"}} 4096', page)
        self.assertIn('tally_grant_sessions{tenant="team-a"} 1', page)

    def test_a_stolen_connection_is_worth_what_the_grant_is(self):
        self.start_daemon("--allow-any-uid")
        path = self.grant("victim")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        raw = [hello(priority=HIGH), hello(tenant="thief")]
        child = os.fork()
        if child == 0:  # somebody else, who was handed connections that he could not have made
            code = 1
            with contextlib.suppress(BaseException):
                if os.getuid() == 0:
                    os.setgid(54321)
                    os.setuid(54321)
                _, fds, _, _ = socket.recv_fds(theirs, 1, 2)
                for fd, words in zip(fds, raw):
                    with socket.socket(fileno=fd) as stolen:
                        stolen.send(words)
                code = 0
            os._exit(code)
        first, second = self.connect_by(path), self.connect_by(path)
        socket.send_fds(ours, [b"x"], [first.fileno(), second.fileno()])
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        with self.assertRaises(Refused) as caught:
            Session.answered_on(first)
        self.assertEqual(caught.exception.code, PERMISSION_DENIED)
        session = Session.answered_on(second)
        self.addCleanup(session.close)
        (row,) = self.ctl_json("ps")
        self.assertEqual((row["tenant"], row["class"], row["pid"]), ("victim", "best-effort", os.getpid()))
        self.assertEqual(self.ctl("grant", "revoke", "victim").returncode, 0)
        wait_until(lambda: not session.is_open(), "it ends with the grant")

    def test_quotas_are_the_tenants(self):
        config = self.configure(max_sessions_per_user=2)
        self.start_daemon("--config", config)
        path, other = self.grant("team-a"), self.grant("team-b")
        self.by(path)
        self.by(path)
        self.assert_refused_by(path, RESOURCE_EXHAUSTED, "tenant 'team-a' has all 2 sessions")
        self.by(other)
        self.session()
        self.session()
        self.assert_refused(RESOURCE_EXHAUSTED, f"user {os.getuid()} has all 2 sessions")

    def test_a_flood_by_one_grant_costs_no_other_a_connection(self):
        self.start_daemon()
        path, other = self.grant("loud"), self.grant("quiet")
        slow = self.connect_by(other)  # the oldest of all
        flood = [self.connect_by(path) for _ in range(200)]
        wait_until(lambda: self.is_hung_up(flood[0]), "the oldest of that grant is hung up on")
        slow.send(hello())
        self.assert_gets_session(slow)

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_users_of_the_machine_do_not_get_to_it(self):
        self.start_daemon("--allow-any-uid")
        path = self.grant("pod")
        grants = os.path.join(self.directory, "grants")
        self.assertEqual(stat.S_IMODE(os.stat(grants).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o711)
        with as_user(54321):
            with self.assertRaises(PermissionError):
                connected(path)
            Session(self.socket_path).close()

    @unittest.skipUnless(os.getuid() == 0, "only root can mount")
    def test_a_container_of_any_user_gets_to_it_by_its_mount(self):
        # allowed_uids does not matter: the grant is the permission.
        self.start_daemon("--allow-uid", "1")
        path = self.grant("pod")
        inside = os.path.join(self.directory, "inside")
        os.mkdir(inside)
        os.chmod(inside, 0o755)
        os.chmod(self.directory, 0o711)
        script = ("import os, socket, sys; os.setgid(54321); os.setuid(54321); s = socket.socket(socket.AF_UNIX, "
                  "socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); s.send(bytes.fromhex(sys.argv[2])); "
                  "print(int.from_bytes(s.recv(4096)[24:28], 'little'), os.listdir(os.path.dirname(sys.argv[1])) "
                  "if os.access(os.path.dirname(sys.argv[1]), os.R_OK) else 'not listed')")
        got = subprocess.run(["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && exec "$2" -c "$3" "$1/tally.sock" "$4"',
                              os.path.dirname(path), inside, sys.executable, script, hello().hex()],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(got, "0 not listed\n")


class Root(GrantTest):
    """User 0 of a container is no user 0 of the machine."""

    @staticmethod
    def in_a_process_namespace(path, **words):
        """What tallyd answers to root that is in one."""
        script = ("import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); "
                  "s.send(bytes.fromhex(sys.argv[2])); a = s.recv(4096); "
                  "print(int.from_bytes(a[24:28], 'little'), a[32:].split(bytes(1))[0].decode())")
        answer = subprocess.run(["unshare", "--pid", "--fork", sys.executable, "-c", script, path, hello(**words).hex()],
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        code, _, sentence = answer.strip().partition(" ")
        return int(code), sentence

    @unittest.skipUnless(os.getuid() == 0, "only root can")
    def test_it_has_no_exemption(self):
        self.start_daemon("--config", self.configure(allowed_uids="any", high_priority_uids=[]))
        self.session(priority=HIGH)  # root of the machine
        code, sentence = self.in_a_process_namespace(self.socket_path, priority=HIGH)
        self.assertEqual(code, PERMISSION_DENIED)
        self.assertIn("root of a container may not run high-priority programs", sentence)
        self.assertEqual(self.in_a_process_namespace(self.socket_path), (0, ""))
        self.assertEqual(self.in_a_process_namespace(self.grant("pod", "--priority", "high"), priority=HIGH), (0, ""))

    @unittest.skipUnless(os.getuid() == 0, "only root can")
    def test_it_may_be_shut_out(self):
        self.start_daemon("--allow-uid", "12345")
        self.session()
        self.assertEqual(self.in_a_process_namespace(self.socket_path)[0], PERMISSION_DENIED)
        self.assertEqual(self.in_a_process_namespace(self.grant("pod")), (0, ""))

    @unittest.skipUnless(os.getuid() == 0, "only root can")
    def test_that_of_a_user_namespace_is_who_it_is_outside(self):
        self.start_daemon("--config", self.configure(allowed_uids="any", high_priority_uids=[]))
        os.chmod(self.directory, 0o711)
        answers, theirs = os.pipe()
        words = hello(priority=HIGH)
        child = os.fork()
        if child == 0:
            answer = b"no user namespaces here"
            with contextlib.suppress(BaseException):
                libc = ctypes.CDLL(None)
                os.setgroups([])
                os.setgid(54321)
                os.setuid(54321)
                libc.prctl(4, 1)  # PR_SET_DUMPABLE: its own files in /proc
                if libc.unshare(0x10000000) == 0:  # CLONE_NEWUSER
                    with open("/proc/self/uid_map", "w", encoding="ascii") as file:
                        file.write("0 54321 1")
                    assert os.getuid() == 0
                    connection = connected(self.socket_path)
                    connection.send(words)
                    answer = connection.recv(4096)[32:]
            os.write(theirs, answer)
            os._exit(0)
        os.close(theirs)
        os.waitpid(child, 0)
        answer = os.read(answers, 4096)
        os.close(answers)
        if answer == b"no user namespaces here":
            self.skipTest(answer.decode())
        self.assertIn(b"user 54321 may not run high-priority programs", answer)

    def test_the_control_group_is_shown(self):
        self.start_daemon()
        self.session()
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = re.search("^0::(.*)$", file.read(), re.MULTILINE)
        self.assertEqual(self.ctl_json("ps")[0]["cgroup"], own.group(1) if own else "")


class Revoke(GrantTest):
    def test_in_mid_run(self):
        daemon = self.start_daemon()
        path, other = self.grant("gone"), self.grant("other")
        session, bystander = self.by(path), self.by(other)
        pids = {row["domain"]: row["pid"] for row in self.ctl_json("executors")}
        self.assertEqual(self.ctl("grant", "revoke", "gone").returncode, 0)
        wait_until(lambda: not session.is_open(), "its session ends")
        wait_until(lambda: not is_alive(pids["best-effort@gone"]), "so does its executor")
        self.assertFalse(os.path.exists(os.path.dirname(path)))
        self.assertTrue(bystander.is_open() and is_alive(pids["best-effort@other"]))
        self.assertEqual(set(self.tenants()), {"other"})
        self.assertIn("the grant of tenant 'gone' was revoked", self.log_of(daemon))
        unknown = self.ctl("grant", "revoke", "gone")
        self.assertEqual((unknown.returncode, unknown.stderr),
                         (1, "tallyctl: there is no such grant: 'tallyctl grant list' lists them\n"))
        self.by(self.grant("gone"))  # a new one of that name, with an executor of its own
        self.assertNotIn(pids["best-effort@gone"], [row["executor_pid"] for row in self.ctl_json("ps")])

    def test_in_a_shared_domain_ends_its_sessions_only(self):
        self.start_daemon()
        path, other = self.grant("gone", "--domain", "shared"), self.grant("other", "--domain", "shared")
        session, bystander = self.by(path), self.by(other)
        self.assertEqual(self.ctl("grant", "revoke", "gone").returncode, 0)
        wait_until(lambda: not session.is_open(), "its session ends")
        self.assertTrue(bystander.is_open())
        wait_until(lambda: [row["tenant"] for row in self.ctl_json("ps")] == ["other"], "one is left")

    def test_while_connecting(self):
        ready = os.path.join(self.directory, "ready")
        self.start_daemon(env={"TALLY_SCRIPT_START": ready})
        path = self.grant("gone", "--priority", "high")
        waiting = self.connect_by(path)
        waiting.send(hello())  # until its executor has started, which it never does
        wait_until(lambda: self.ctl_json("executors"), "it starts")
        silent = self.connect_by(path)  # only now: who says nothing for five seconds is told that
        self.assertEqual(self.ctl("grant", "revoke", "gone").returncode, 0)
        silent.send(hello())  # not as if it had come by the common socket
        for connection in (silent, waiting):
            with self.assertRaises(Refused) as caught:
                Session.answered_on(connection)
            self.assertEqual(caught.exception.code, PERMISSION_DENIED)
            self.assertIn("was revoked", caught.exception.sentence)
        with self.assertRaises(OSError):
            connected(path)
        wait_until(lambda: not self.ctl_json("executors"), "nobody needs that executor")

    def test_who_has_said_hello_in_the_same_moment(self):
        """Hellos lie unread while the grant goes, and there are more than tallyd keeps: it reads some to make room."""
        daemon = self.start_daemon("--config", self.configure(grants=[{"tenant": "gone"}]))
        path = os.path.join(self.directory, "grants", "gone", "tally.sock")
        clients = [self.connect_by(path) for _ in range(64)]
        self.session()  # so they were accepted
        os.kill(daemon.pid, signal.SIGSTOP)
        self.configure(grants=[])
        daemon.send_signal(signal.SIGHUP)  # the first that it sees
        clients += [self.connect_by(path) for _ in range(40)]
        for connection in clients:
            connection.send(hello())
        os.kill(daemon.pid, signal.SIGCONT)
        for connection in clients:
            with contextlib.suppress(Refused, OSError):
                session = Session.answered_on(connection)
                self.addCleanup(session.close)
                wait_until(lambda: not session.is_open(), "whoever got one loses it")
        wait_until(lambda: [row["tenant"] for row in self.ctl_json("ps")] == ["tester"], "nobody came as its user")


class BadWishes(GrantTest):
    def test_names_that_lead_elsewhere_or_nowhere(self):
        self.start_daemon()
        self.grant("a")
        for name in ("..", ".", "a/b", "../clients", "/etc", ".hidden", "x y", "new\nline", "x" * 64, "ü", '"'):
            with self.subTest(name=name):
                self.assert_no_grant("a name is 1 to 63 letters", name)
        self.assert_no_grant("there is a grant 'a' already", "a")
        self.assertEqual(sorted(os.listdir(os.path.join(self.directory, "grants"))), ["a"])

    def test_a_link_in_its_place_is_not_followed(self):
        self.start_daemon()
        self.grant("a")
        elsewhere = os.path.join(self.directory, "elsewhere")
        os.mkdir(elsewhere)
        os.symlink(elsewhere, os.path.join(self.directory, "grants", "b"))
        self.assert_no_grant("is there and is no directory", "b")
        self.assertEqual(os.listdir(elsewhere), [])

    def test_labels_cannot_break_out(self):
        port = free_port()
        self.start_daemon(metrics=f"127.0.0.1:{port}")
        self.assert_no_grant("printable characters", "a", "--pod", 'x"} 1\nfake_metric{a="b')
        self.assert_no_grant("printable characters", "a", "--namespace", "\x1b[31m")
        self.assert_no_grant("printable characters", "a", "--container", "x" * 254)
        self.grant("a", "--pod", 'x"} 1 \\n fake_metric{a="b', "--namespace", "n\\")
        self.by(os.path.join(self.directory, "grants", "a", "tally.sock"))
        page = self.scrape(port)
        self.assertIn('namespace="n\\\\",pod="x\\"} 1 \\\\n fake_metric{a=\\"b",container=""} 1', page)
        self.assertNotRegex(page, "(?m)^fake_metric")

    def test_quotas_that_mean_nothing(self):
        self.start_daemon()
        for arguments, words in ((["--memory", "-8G"], "--memory"), (["--memory", "8 elephants"], "--memory"),
                                 (["--memory", "99999999999G"], "--memory"), (["--weight", "0"], "--weight"),
                                 (["--weight", "-1"], "--weight"), (["--level", "8"], "--level"),
                                 (["--share", "-30%"], "is no share"), (["--share", "130%"], "is no share"),
                                 (["--share", "nan"], "is no share"), (["--share", "half"], "is no share"),
                                 (["--priority", "urgent"], "--priority"), (["--domain", "mine"], "--domain")):
            with self.subTest(arguments=arguments):
                self.assert_no_grant(words, "a", *arguments, status=2)

    def test_what_cannot_be_kept_is_refused(self):
        self.start_daemon("--policy", "look-ahead")
        self.assert_no_grant("a share caps best-effort programs", "a", "--share", "30%", "--priority", "high")
        self.assert_no_grant("names no GPU", "a", "--gpu", "GPU-1")
        self.assert_no_grant("grant 'a'", "a", "--weight", "300")
        self.grant("a", "--share", "100%")

    def test_in_the_file(self):
        for grants, words in (([{"tenant": "a"}, {"tenant": "a"}], "grant 'a' is there twice"),
                              ([{"tenant": "../a"}], "a name is 1 to 63"), ({}, "must be a list of grants"),
                              ([{"tenant": "a", "wieght": 3}], "a grant has no 'wieght'"),
                              ([{"tenant": "a", "weight": -3}], "'weight' must be a whole number"),
                              ([{"tenant": "a", "device_memory_bytes": "8G"}], "'device_memory_bytes' must be"),
                              ([{"tenant": "a", "class": "urgent"}], "is no priority"),
                              ([{"tenant": "a", "share": 0.3, "class": "high"}], "a share caps best-effort"), ([3], "must be an object"),
                              ([{"tenant": "a", "namespace": "x" * 10_000}], "printable characters")):
            with self.subTest(grants=grants):
                run = subprocess.run([program("tallyd"), "--config", self.configure(grants=grants), "--socket",
                                      self.socket_path, "--driver", "sim"], stderr=subprocess.PIPE, text=True, timeout=60,
                                     check=False)
                self.assertEqual((run.returncode, run.stderr.count("\n")), (2, 1), run.stderr)
                self.assertIn(words, run.stderr)
                self.assertLess(len(run.stderr), 1000)

    def test_a_runtime_directory_that_vanishes(self):
        daemon = self.start_daemon()
        session = self.by(self.grant("a"))
        shutil.rmtree(os.path.join(self.directory, "grants"))
        self.grant("b")  # made again
        os.rename(self.directory, self.directory + "-gone")
        self.addCleanup(shutil.rmtree, self.directory + "-gone", True)
        refused = subprocess.run([program("tallyctl"), "--socket", self.directory + "-gone/tally.sock", "grant", "create",
                                  "c"], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (1, 1), refused.stderr)
        self.assertTrue(session.is_open() and daemon.poll() is None)
        os.rename(self.directory + "-gone", self.directory)
        self.assertEqual(set(self.tenants()), {"a", "b"})


class Restart(GrantTest):
    def test_grants_and_their_sessions_outlive_a_daemon(self):
        first = self.start_daemon()
        path, shared = self.grant("team-a", "--priority", "high", "--namespace", "blue"), self.grant("s", "--domain", "shared")
        sessions = [self.by(path), self.by(shared)]
        self.assertEqual(len(self.ctl_json("ps")), 2)  # so their executors have them
        before = self.tenants()
        inode = os.stat(os.path.dirname(path)).st_ino
        first.kill()
        first.wait()
        self.start_daemon()
        wait_until(lambda: self.tenants() == before, "the same grants with the same sessions")
        self.assertEqual(os.stat(os.path.dirname(path)).st_ino, inode, "containers have this directory mounted")
        rows = {row["tenant"]: row for row in self.ctl_json("ps")}
        self.assertEqual((rows["team-a"]["domain"], rows["team-a"]["namespace"]), ("high@team-a", "blue"))
        self.by(path)  # to the same executor
        self.assertEqual(len(self.ctl_json("executors")), 2)
        for tenant in ("team-a", "s"):
            self.assertEqual(self.ctl("grant", "revoke", tenant).returncode, 0)
        wait_until(lambda: not any(session.is_open() for session in sessions), "all of them end")

    def test_a_grant_that_goes_while_no_daemon_is_there(self):
        first = self.start_daemon("--config", self.configure(grants=[{"tenant": "a"}, {"tenant": "b", "domain": "shared"},
                                                                     {"tenant": "c"}]))
        at = lambda tenant: os.path.join(self.directory, "grants", tenant, "tally.sock")
        gone, shared, stays = self.by(at("a")), self.by(at("b")), self.by(at("c"))
        self.assertEqual(len(self.ctl_json("ps")), 3)  # so their executors have them
        first.kill()
        first.wait()
        self.start_daemon("--config", self.configure(grants=[{"tenant": "c"}]))
        wait_until(lambda: not gone.is_open() and not shared.is_open(), "their sessions end")
        self.assertTrue(stays.is_open())
        self.assertEqual(os.listdir(os.path.join(self.directory, "grants")), ["c"])

    def test_the_file_is_read_again(self):
        daemon = self.start_daemon("--config", self.configure(grants=[{"tenant": "a"}, {"tenant": "b"}]))
        at = lambda tenant: os.path.join(self.directory, "grants", tenant, "tally.sock")
        gone, stays = self.by(at("a")), self.by(at("b"))
        refused = self.ctl("grant", "revoke", "a")
        self.assertIn("is of tallyd's configuration", refused.stderr)
        self.grant("by-hand")
        self.configure(grants=[{"tenant": "b", "class": "high"}, {"tenant": "c"}])
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: set(self.tenants()) == {"b", "c", "by-hand"}, "as the file says")
        wait_until(lambda: not gone.is_open(), "its session ends")
        self.assertTrue(stays.is_open())
        self.by(at("c"))
        self.by(at("b"), priority=HIGH)
        self.configure(grants=[{"tenant": "b"}, {"tenant": "b"}])
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: "nothing is changed" in self.log_of(daemon), "it says so")
        self.assertEqual(set(self.tenants()), {"b", "c", "by-hand"})

    def test_an_orderly_end_keeps_directories_and_removes_sockets(self):
        first = self.start_daemon()
        path = self.grant("a")
        session = self.by(path)
        self.assertEqual(len(self.ctl_json("ps")), 1)  # so its executor has it
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(60), 0)
        self.assertTrue(os.path.isdir(os.path.dirname(path)) and not os.path.exists(path) and session.is_open())
        self.start_daemon()
        self.by(path)

    def test_a_damaged_book_is_one_sentence(self):
        self.start_daemon().kill()
        self.daemons[0].wait()
        for text in ("{", "[]", '{"next_id": 1, "grants": [{"id": 7, "grant": {"tenant": "a"}}]}',
                     '{"next_id": 9, "grants": [{"id": 7, "grant": {"tenant": "../x"}}]}'):
            with open(os.path.join(self.directory, "grants.json"), "w", encoding="utf-8") as file:
                file.write(text)
            log = self.wait_for_failure(self.start_daemon(wait=False))
            self.assertIn("grants.json' is not as tallyd leaves it", log)
        os.remove(os.path.join(self.directory, "grants.json"))
        self.start_daemon()


if __name__ == "__main__":
    unittest.main(verbosity=2)
