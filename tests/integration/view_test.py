#!/usr/bin/env python3
"""What a user sees of tallyd without being its administrator: his own sessions, and nothing of anybody else's."""
import json
import os
import shutil
import socket
import stat
import subprocess
import time
import unittest

from support.daemon_fixture import DaemonTest, Session, as_user, program, wait_until

MINE, THEIRS = 12345, 54321
SECRETS = ("their-secret", "root-secret", "granted-secret", "their-pod", "54321")
ONLY_FOR = "is only for the user who runs tallyd"


class TwoUsers(DaemonTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.tallyctl = os.path.join(self.directory, "tallyctl")  # where everybody gets to
        shutil.copy(program("tallyctl"), self.tallyctl)
        os.chmod(self.tallyctl, 0o755)

    def as_user_session(self, uid, **words):
        with as_user(uid):
            session = Session(self.socket_path, **words)
        self.addCleanup(session.close)
        return session

    def populate(self):
        self.session(tenant="root-secret")
        self.as_user_session(THEIRS, tenant="their-secret")
        made = self.ctl("grant", "create", "granted-secret", "--pod", "their-pod", "--namespace", "x")
        self.assertEqual(made.returncode, 0, made.stderr)
        by_grant = Session(made.stdout.strip())
        self.addCleanup(by_grant.close)
        return self.as_user_session(MINE, tenant="mine")

    def ctl_as(self, uid, *arguments):
        return subprocess.run([self.tallyctl, "--socket", self.socket_path, *arguments], user=uid, group=uid, text=True,
                              extra_groups=[], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", check=False)

    def assert_nothing_leaks(self, result):
        for secret in SECRETS:
            self.assertNotIn(secret, result.stdout + result.stderr)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
class View(TwoUsers):
    def test_a_user_sees_his_own_sessions(self):
        mine = self.populate()
        self.assertEqual(len(self.ctl_json("ps")), 4)
        result = self.ctl_as(MINE, "--json", "ps")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([(row["id"], row["tenant"]) for row in json.loads(result.stdout)], [(mine.id, "mine")])
        for command in (("ps",), ("--json", "ps"), ("top", "--once", "--interval", "0.1"), ("coverage",), ("window",),
                        ("--json", "top", "--once", "--interval", "0.1"), ("--json", "window"), ("--json", "window", "--shapes"),
                        ("executors",), ("--json", "executors"), ("version",), ("--json", "version"),
                        ("trace", "--seconds", "0.01", "-o", "-")):
            result = self.ctl_as(MINE, *command)
            self.assertEqual(result.returncode, 0, (command, result.stderr))
            self.assert_nothing_leaks(result)
        (executor,) = json.loads(self.ctl_as(MINE, "--json", "executors").stdout)
        self.assertEqual((executor["domain"], executor["num_sessions"]), (f"best-effort:{MINE}", 1))

    def test_nothing_that_changes_something_or_names_others(self):
        self.populate()
        ids = [str(row["id"]) for row in self.ctl_json("ps")]
        for command in (("kernels",), ("--json", "kernels"), ("grant", "list"), ("--json", "grant", "list"),
                        ("grant", "create", "evil"), ("grant", "revoke", "granted-secret"), ("set-turnaround", "100"),
                        *(("set-weight", number, "10000") for number in ids),
                        *(("set-priority", number, "high") for number in ids)):
            result = self.ctl_as(MINE, *command)
            self.assertEqual((result.returncode, result.stdout), (1, ""), command)
            self.assertIn(ONLY_FOR, result.stderr)
            self.assert_nothing_leaks(result)
        self.assertEqual([row["weight"] for row in self.ctl_json("ps")], [100] * 4)

    def test_an_owner_sees_the_sessions_of_his_grants(self):
        mine = self.populate()
        made = self.ctl("grant", "create", "my-service", "--owner", str(MINE), "--pod", "my-pod")
        self.assertEqual(made.returncode, 0, made.stderr)
        by_grant = Session(made.stdout.strip())  # of user 0, as in a container
        self.addCleanup(by_grant.close)
        for command in (("--json", "ps"), ("--json", "coverage")):
            rows = json.loads(self.ctl_as(MINE, *command).stdout)
            self.assertEqual([row["id"] for row in rows], [mine.id, by_grant.id])
        self.assertEqual(json.loads(self.ctl_as(THEIRS, "--json", "ps").stdout)[0]["tenant"], "their-secret")
        self.assertEqual(len(json.loads(self.ctl_as(THEIRS, "--json", "ps").stdout)), 1)
        executors = {row["domain"] for row in json.loads(self.ctl_as(MINE, "--json", "executors").stdout)}
        self.assertEqual(executors, {f"best-effort:{MINE}", "best-effort@my-service"})
        (grant,) = [row for row in self.ctl_json("grant", "list") if row["tenant"] == "my-service"]
        self.assertEqual(grant["owner_uid"], MINE)
        # Seeing is all.
        result = self.ctl_as(MINE, "set-weight", str(by_grant.id), "7")
        self.assertEqual(result.returncode, 1)
        self.assertIn(ONLY_FOR, result.stderr)
        for wrong in ("-1", "4294967295", "4294967296", "root", "1.5"):
            result = self.ctl("grant", "create", "wrong", f"--owner={wrong}")
            self.assertNotEqual(result.returncode, 0, wrong)
            self.assertNotIn("wrong", [row["tenant"] for row in self.ctl_json("grant", "list")])

    def test_totals_are_the_administrators_unless_tallyd_tells_everybody(self):
        self.populate()
        totals = self.ctl_json("totals")
        self.assertEqual((totals["sessions"], totals["high_priority_sessions"]), (4, 0))
        result = self.ctl_as(MINE, "totals")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("show_totals", result.stderr)
        self.daemons[0].kill()
        self.daemons[0].wait()
        config = os.path.join(self.directory, "tallyd.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"show_totals": True}, file)
        self.start_daemon("--config", config)
        wait_until(lambda: self.ctl_json("totals")["sessions"] == 4, "executors have come back")
        result = self.ctl_as(MINE, "--json", "totals")
        self.assertEqual(json.loads(result.stdout)["sessions"], 4, result.stderr)
        self.assert_nothing_leaks(result)
        self.assert_nothing_leaks(self.ctl_as(MINE, "totals"))

    def test_root_sees_no_grants_there_but_on_its_own_socket(self):
        self.populate()
        os.rename(os.path.join(self.directory, "control.sock"), os.path.join(self.directory, "moved"))
        os.symlink("view.sock", os.path.join(self.directory, "control.sock"))
        self.assertEqual([row["tenant"] for row in self.ctl_json("ps")], ["root-secret"])

    def test_root_of_a_container_sees_nothing(self):
        self.populate()
        result = subprocess.run(["unshare", "--pid", "--fork", self.tallyctl, "--socket", self.socket_path, "--json", "ps"],
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(len(json.loads(result.stdout or "[]")), 4, result.stderr)  # by the administrator's socket
        os.rename(os.path.join(self.directory, "control.sock"), os.path.join(self.directory, "moved"))
        os.symlink("view.sock", os.path.join(self.directory, "control.sock"))
        result = subprocess.run(["unshare", "--pid", "--fork", self.tallyctl, "--socket", self.socket_path, "--json", "ps"],
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(result.returncode, 1)
        self.assert_nothing_leaks(result)

    def test_many_connections_do_not_take_what_others_need(self):
        self.populate()
        path = os.path.join(self.directory, "view.sock")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o666)
        opened = []
        with as_user(THEIRS):
            for _ in range(100):
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.connect(path)
                opened.append(connection)
                self.addCleanup(connection.close)
        self.assertEqual(self.ctl_as(MINE, "ps").returncode, 0)
        self.assertEqual(self.ctl_as(THEIRS, "ps").returncode, 1)
        descriptors = lambda: len(os.listdir(f"/proc/{self.daemons[0].pid}/fd"))
        self.assertLess(descriptors(), 120)
        for connection in opened:
            connection.close()
        wait_until(lambda: self.ctl_as(THEIRS, "ps").returncode == 0, "they are forgotten")

    def test_nonsense_is_no_end_of_it(self):
        self.populate()
        with as_user(MINE):
            for bytes_sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096, os.urandom(10_000)):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.connect(os.path.join(self.directory, "view.sock"))
                    connection.sendall(bytes_sent)
        self.assertEqual(self.ctl_as(MINE, "ps").returncode, 0)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
class Traces(TwoUsers):
    executor = ""  # the real one: the scripted one records nothing

    def test_the_administrators_trace_goes_before_a_users(self):
        self.populate()
        def record():
            run = subprocess.Popen([self.tallyctl, "--socket", self.socket_path, "trace", "--seconds", "50", "-o", "-"],
                                   user=MINE, group=MINE, extra_groups=[], text=True, cwd="/", stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
            self.addCleanup(self.end, run)
            return run
        user = record()
        def refused():
            nonlocal user
            if user.poll() is not None:  # what follows came first, and the long one was refused
                user = record()
            return self.ctl_as(MINE, "trace", "--seconds", "0.001", "-o", "/dev/null").returncode == 1 and user.poll() is None
        wait_until(refused, "the first is being recorded")
        began = time.monotonic()
        path = os.path.join(self.directory, "trace.json")
        result = self.ctl("trace", "--seconds", "0.01", "-o", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertLess(time.monotonic() - began, 20)
        output, errors = user.communicate(timeout=60)
        self.assertEqual(user.returncode, 0, errors)
        self.assertIn("that of tallyd's administrator went first", errors)
        json.loads(output)  # what was recorded until then


class WithoutOthers(DaemonTest):
    def test_it_can_be_off_and_is_where_nobody_else_comes(self):
        self.start_daemon("--allow-uid", str(os.getuid()))
        self.assertFalse(os.path.exists(os.path.join(self.directory, "view.sock")))
        self.daemons[0].kill()
        self.daemons[0].wait()
        config = os.path.join(self.directory, "tallyd.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"allowed_uids": "any", "show_own_sessions": False}, file)
        self.start_daemon("--config", config)
        self.assertFalse(os.path.exists(os.path.join(self.directory, "view.sock")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
