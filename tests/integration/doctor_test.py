#!/usr/bin/env python3
"""tallyctl doctor beside a real tallyd, without one, and beside one that does not answer."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import unittest

from support.daemon_fixture import DaemonTest, program

BUILD = os.environ["TALLY_TEST_BUILD"]
CLIENT = os.path.join(BUILD, "lib", "tally", "client", "libcuda.so.1")


class Doctor(DaemonTest):
    def examine(self, *arguments):
        result = self.ctl("--json", "doctor", *arguments)
        rows = {row["check"]: row for row in json.loads(result.stdout)} if result.stdout else {}
        self.assertEqual(result.returncode, int(any(row["state"] == "failed" for row in rows.values()) or not rows))
        return rows, result.stderr

    def test_beside_a_tallyd(self):
        cache = os.path.join(self.directory, "cache")
        daemon = self.start_daemon("--cache-directory", cache)
        rows, _ = self.examine()
        self.assertEqual(rows["tallyd"]["state"], "ok", rows["tallyd"])
        self.assertIn(f"process {daemon.pid} of user {os.getuid()}, driver sim", rows["tallyd"]["found"])
        self.assertEqual((rows["socket"]["state"], rows["socket directory"]["state"]), ("ok", "ok"))
        self.assertIn(self.socket_path, rows["socket"]["found"])
        self.assertIn(cache, rows["cache directory"]["found"])
        self.assertIn("tallyd", rows["locked memory"]["found"])

    @unittest.skipUnless(os.path.exists(CLIENT), "the client library is not built")
    def test_nothing_has_failed_where_all_is_there(self):
        self.start_daemon()
        result = self.ctl("doctor", program("tallyd"))
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertRegex(result.stdout, r"^CHECK +STATE +FOUND\nglibc +ok +2\.\d+; the client library needs 2\.\d+\n")
        self.assertRegex(result.stdout, r" checks, \d+ warnings, 0 failed\n$")

    def test_without_a_tallyd(self):
        rows, _ = self.examine()
        self.assertEqual([name for name, row in rows.items() if row["state"] == "failed" and name != "client library"],
                         ["tallyd"])
        self.assertIn("no tallyd serves", rows["tallyd"]["found"])
        self.assertIn("tally-run --embedded", rows["tallyd"]["advice"])

    def test_a_tallyd_that_does_not_answer_is_not_waited_for_long(self):
        daemon = self.start_daemon()
        os.kill(daemon.pid, signal.SIGSTOP)
        since = time.monotonic()
        rows, _ = self.examine()
        self.assertLess(time.monotonic() - since, 15)
        self.assertEqual(rows["tallyd"]["state"], "warning", rows["tallyd"])
        self.assertIn(f"process {daemon.pid}", rows["tallyd"]["found"])

    def test_a_socket_that_lets_nobody_in_ends_it_with_a_sentence(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(self.socket_path)
        listener.listen(0)
        for _ in range(3):  # until the queue is full
            waiting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(waiting.close)
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(self.socket_path)
        since = time.monotonic()
        rows, said = self.examine()
        self.assertLess(time.monotonic() - since, 25)
        self.assertEqual((rows, said), ({}, "tallyctl: doctor was not done within 10 s: tallyd did not answer\n"))

    def test_programs(self):
        machine_code = os.path.join(BUILD, "tests", "machine_code_only")
        if os.path.exists(machine_code):
            rows, _ = self.examine(machine_code)
            self.assertEqual(rows["its device code"]["found"], "PTX: none; machine code: sm_80, sm_90")
            self.assertEqual(rows["on the software GPU"]["state"], "warning")
        rows, _ = self.examine("true")
        self.assertIn("is dynamically linked", rows["program"]["found"])

    def test_programs_that_cannot_be_judged_are_one_sentence(self):
        text = os.path.join(self.directory, "text")
        with open(text, "w", encoding="ascii") as file:
            file.write("x" * 100)
        closed = os.path.join(self.directory, "closed")
        with open(closed, "w", encoding="ascii") as file:
            file.write("x")
        os.chmod(closed, 0)
        cases = [(text, "no ELF file"), (self.directory, "is no file"), ("/nowhere", "No such file")]
        if os.geteuid() != 0:
            cases.append((closed, "Permission denied"))
        for path, words in cases:
            with self.subTest(path):
                rows, said = self.examine(path)
                self.assertEqual(rows, {})
                self.assertRegex(said, rf"^tallyctl: .*{words}.*\n$")

    def test_unprivileged_users_learn_what_they_may(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        os.chmod(self.directory, 0o711)
        daemon = self.start_daemon()
        result = subprocess.run([program("tallyctl"), "--json", "--socket", self.socket_path, "doctor"], text=True,
                                stdout=subprocess.PIPE, check=False, user=54321, group=54321, extra_groups=[])
        rows = {row["check"]: row for row in json.loads(result.stdout)}
        self.assertEqual(rows["tallyd"]["state"], "ok", rows["tallyd"])
        self.assertIn(f"process {daemon.pid} of user 0", rows["tallyd"]["found"])
        self.assertIn("you see your own sessions only", rows["tallyd"]["found"])
        self.assertIn("no executor of yours", rows["suspension"]["found"])
        # Which it is they are not told: that is not the same as none.
        self.assertNotEqual(rows["cache directory"]["found"], "none")
        self.assertEqual(rows["socket"]["state"], "ok")


if __name__ == "__main__":
    unittest.main()
