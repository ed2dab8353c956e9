#!/usr/bin/env python3
"""tallyd with a scripted executor: who connects, says hello or nothing, and is refused."""
import json
import os
import struct
import unittest

from support.daemon_fixture import (BEST_EFFORT, HELLO, HIGH, MAGIC, REPLY, VERSION, DaemonTest, Refused, Session,
                                    as_user, hello, wait_until)

# proto/shm/tenant_view_abi.h
VIEW_MAGIC, VIEW_REQUEST, VIEW_REPLY = 0x57454956, struct.Struct("<II64sQ"), struct.Struct("<IIIIIIQ")
INVALID_ARGUMENT, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 3, 7, 8, 9


class Hello(DaemonTest):
    def test_session_is_listed_with_what_the_kernel_knows(self):
        self.start_daemon()
        session = self.session(tenant="resnet", priority=HIGH)
        (row,) = self.ctl_json("ps")
        self.assertEqual(row["id"], session.id)
        self.assertEqual(row["tenant"], "resnet")
        self.assertEqual(row["pid"], os.getpid())
        self.assertEqual(row["uid"], os.getuid())
        self.assertEqual(row["class"], "high")
        self.assertEqual(row["domain"], f"high:{os.getuid()}")
        self.assertEqual(row["kernel_launches"], session.id)
        self.assertEqual(row["device_memory_bytes"], 4096)
        self.assertFalse(row["is_stale"])
        self.assertIn("resnet", self.ctl("ps").stdout)

    def test_who_only_starts_an_executor_is_no_process_of_its_tenant(self):
        self.start_daemon()
        sessions = [self.session(tenant="resnet"), self.session(tenant="resnet", only_starts=1)]
        self.assertEqual(len(self.ctl_json("ps")), len(sessions), "an administrator sees both")
        connection = self.connect()
        connection.send(VIEW_REQUEST.pack(VIEW_MAGIC, VERSION, b"resnet", 0))
        answer = connection.recv(1 << 16)
        self.assertEqual(VIEW_REPLY.unpack_from(answer)[5], 1)

    def test_wrong_protocol_version_gets_a_sentence_with_both(self):
        self.start_daemon()
        self.assert_refused(FAILED_PRECONDITION, "protocol version 99, this tallyd version 3", version=99)
        self.assert_refused(FAILED_PRECONDITION, "protocol version 4", raw=HELLO.pack(MAGIC, 4, 0, 0, 0, b"", b"", b"", 0, 0, 0)
                            + b"more of a later version")

    def test_other_driver_table_gets_a_sentence(self):
        self.start_daemon()
        self.assert_refused(FAILED_PRECONDITION, "driver table 0000000000000005", table=5)

    def test_garbage_is_refused_and_the_daemon_lives(self):
        self.start_daemon()
        self.assert_refused(INVALID_ARGUMENT, "does not speak Tally's protocol", raw=b"GET / HTTP/1.0\r\n\r\n")
        self.assert_refused(INVALID_ARGUMENT, "does not speak Tally's protocol", raw=b"x")
        self.assert_refused(INVALID_ARGUMENT, "a hello of 167 bytes", raw=HELLO.pack(
            MAGIC, VERSION, 0, 0, 0, b"", b"", b"", 0, 0, 0)[:167])
        self.assert_refused(INVALID_ARGUMENT, "priority class 7", priority=7)
        self.assert_refused(INVALID_ARGUMENT, "there is no window 3", window=3)
        self.assert_refused(INVALID_ARGUMENT, "there is no mode of graphs 3", graphs=3)
        self.assert_refused(INVALID_ARGUMENT, "a domain's name", domain="../../etc")
        self.assert_refused(INVALID_ARGUMENT, "a domain's name", domain="x" * 32)
        self.assertTrue(self.session(tenant="\x1b[31m\xff").is_open())
        self.assertEqual(self.ctl_json("ps")[0]["tenant"], "?[31m??")

    def test_silent_client_is_hung_up_on_and_not_one_that_waits_for_its_executor(self):
        ready = os.path.join(self.directory, "ready")
        self.start_daemon(env={"TALLY_SCRIPT_START": ready})
        waiting = self.connect()
        waiting.send(hello())
        silent = self.connect()  # later than the other, so that one's time is over, too
        self.assertIn(b"no hello", silent.recv(4096))
        with open(ready, "wb"):
            self.assert_gets_session(waiting)

    def test_a_flood_of_silent_clients_costs_nobody_else_a_session(self):
        ready = os.path.join(self.directory, "ready")
        self.start_daemon(env={"TALLY_SCRIPT_START": ready})
        waiting = self.connect()
        waiting.send(hello())
        flood = [self.connect() for _ in range(400)]
        wait_until(lambda: self.is_hung_up(flood[0]), "the oldest of the silent ones is hung up on")
        with open(ready, "wb"):
            self.assert_gets_session(waiting)
        self.session()

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_a_flood_of_one_user_costs_no_other_user_a_connection(self):
        self.start_daemon("--allow-any-uid")
        slow = self.connect()  # the oldest of all
        with as_user(54321):
            flood = [self.connect() for _ in range(400)]
        wait_until(lambda: self.is_hung_up(flood[0]), "the oldest of that user is hung up on")
        slow.send(hello())
        self.assert_gets_session(slow)

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_a_flood_of_many_users_costs_a_quiet_one_nothing(self):
        self.start_daemon("--allow-any-uid")
        self.session()  # an executor is there: slow has five seconds to say hello
        slow = self.connect()
        flood = []
        for uid in range(54321, 54331):
            with as_user(uid):
                flood += [self.connect() for _ in range(60)]
        self.session()  # so all of them were accepted
        self.assertTrue(any(map(self.is_hung_up, flood)), "this test is about more than tallyd keeps")
        slow.send(hello())
        self.assert_gets_session(slow)

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_a_user_that_is_not_allowed_is_told_so_before_it_has_said_anything(self):
        self.start_daemon("--allow-uid", "12345")
        with as_user(54321):
            silent = self.connect()
            self.assertEqual(REPLY.unpack(silent.recv(4096))[4], PERMISSION_DENIED)
            silent.send(hello())  # it may have been on its way
            self.assertEqual(silent.recv(4096), b"")
            flood = [self.connect() for _ in range(100)]
        wait_until(lambda: self.is_hung_up(flood[0]), "not many of them are kept, not even for a moment")
        self.session()

    @unittest.skipUnless(os.getuid() == 0, "only root can become another user")
    def test_who_may_run_high_priority_programs(self):
        config = os.path.join(self.directory, "tallyd.json")

        def classes(**keys):
            """What each of two users gets that ask for high priority and for nothing."""
            with open(config, "w", encoding="utf-8") as file:
                json.dump({"allowed_uids": "any", **keys}, file)
            daemon = self.start_daemon("--config", config)
            got = {}
            for uid in (54321, 54322):
                for priority in (HIGH, 0):
                    try:
                        with as_user(uid):
                            session = self.session(priority=priority)
                    except Refused as refused:
                        self.assertIn("high_priority_uids", refused.sentence)
                        got[uid, priority] = refused.code
                        continue
                    (row,) = (row for row in self.ctl_json("ps") if row["id"] == session.id)
                    self.assertEqual(row["uid"], uid)
                    got[uid, priority] = row["class"]
            daemon.terminate()
            daemon.wait(60)
            return got

        self.assertEqual(classes(high_priority_uids=[54321], default_priority="high"), {
            (54321, HIGH): "high", (54321, 0): "high", (54322, HIGH): PERMISSION_DENIED, (54322, 0): "best-effort"})
        self.assertEqual(classes(), {(54321, HIGH): PERMISSION_DENIED, (54321, 0): "best-effort",
                                     (54322, HIGH): PERMISSION_DENIED, (54322, 0): "best-effort"})

    def test_class_and_domain_must_agree(self):
        self.start_daemon()
        self.assert_refused(FAILED_PRECONDITION, "domain 'high' is high", domain="high", priority=BEST_EFFORT)
        self.session(domain="mine", priority=HIGH)
        self.assert_refused(FAILED_PRECONDITION, "domain 'mine' is high", domain="mine", priority=BEST_EFFORT)
        self.session(domain="mine")  # takes the domain's class
        self.assertEqual({row["class"] for row in self.ctl_json("ps")}, {"high"})

    def test_the_window_is_the_one_that_was_said(self):
        self.start_daemon()
        for window, said in enumerate(("off", "shadow", "on")):
            session = self.session(window=window, priority=HIGH)
            self.assertEqual({row["id"]: row["window"] for row in self.ctl_json("ps")}[session.id], said)

    def test_what_windows_find_is_shown(self):
        self.start_daemon()
        self.session(tenant="plain")
        self.assertIn("tally-run --window=shadow", self.ctl("window").stdout)
        self.assertEqual(self.ctl_json("window"), [])
        session = self.session(tenant="all-figures", window=2)
        (row,) = self.ctl_json("window")
        self.assertEqual((row["id"], row["mode"], list(row["classes"]), list(row["batches"])), (session.id, "on", ["C0"], ["full"]))
        self.assertEqual(row["in_graphs"] - row["held"], 2, "as the rows of the table follow one another")
        self.assertIn("all-figures", self.ctl("window").stdout)
        other = self.session(window=1)
        self.assertEqual([(row["session_id"], row["launches"], row["levels"], row["tracks"], row["uses"], row["in_order_ns"],
                           row["graph_ns"], row["way"]) for row in self.ctl_json("window", "--shapes")],
                         [(id_, 64, 16, 5, 100 + id_, 200_000, 80_000, "graph") for id_ in (other.id, session.id)])
        self.assertIn("2.50", self.ctl("window", "--shapes").stdout)

    def test_graphs_are_shown_and_drawn(self):
        self.start_daemon()
        self.session(tenant="whole", graphs=1)
        self.assertEqual(self.ctl_json("graphs"), [])
        self.assertIn("no graphs", self.ctl("graphs").stdout)
        session = self.session(tenant="cut")
        (row,) = self.ctl_json("graphs")
        self.assertEqual(row, {"id": f"{session.id}.1", "session_id": session.id, "nodes": 500, "partitions": 4, "streams": 2,
                               "gpus": 1, "launches": 100 + session.id, "launches_in_partitions": 90, "whole_ns": 2_000_000,
                               "in_partitions_ns": 2_010_000, "launches_spread": 5, "spread_ns": 1_500_000,
                               "moved_bytes": 4096, "why_whole": ""})
        self.assertIn("2.010", self.ctl("graphs").stdout)
        self.assertEqual(self.ctl("graph", row["id"], "--dot").stdout, "digraph g {\n}\n")
        missing = self.ctl("graph", f"{session.id}.2", "--dot")
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("no such graph", missing.stderr)

    def test_kernels_and_the_turnaround_threshold(self):
        self.start_daemon()
        self.assertEqual(self.ctl_json("kernels"), [])
        self.session(tenant="training")
        (row,) = self.ctl_json("kernels")
        self.assertEqual(row["name"], "scripted")
        self.assertEqual(row["grid"], [2, 3, 4])
        self.assertEqual(row["form"], "workers(264)")
        self.assertEqual(row["turnaround_ns"], 31600)
        self.assertEqual(row["domain"], f"best-effort:{os.getuid()}")
        self.assertIn("+25 %", self.ctl("kernels").stdout)
        self.assertEqual(self.ctl("set-turnaround", "100").returncode, 0)
        wait_until(lambda: self.ctl_json("kernels")[0]["turnaround_ns"] == 100_000, "the executor was told")
        self.assertNotEqual(self.ctl("set-turnaround", "0").returncode, 0)

    def test_a_turnaround_threshold_of_one_session(self):
        self.start_daemon()
        self.session(tenant="patient", turnaround_us=500)
        self.session(tenant="training")
        of = lambda: {row["tenant"]: row["turnaround_ns"] for row in self.ctl_json("ps")}
        self.assertEqual(of(), {"patient": 500_000, "training": 0})
        ids = {row["tenant"]: str(row["id"]) for row in self.ctl_json("ps")}
        self.assertEqual(self.ctl("set-turnaround", "--session", ids["training"], "12.5").returncode, 0)
        self.assertEqual(of(), {"patient": 500_000, "training": 12_500})
        self.assertEqual(self.ctl_json("kernels")[0]["turnaround_ns"], 31600, "everybody else's is as it was")
        self.assertEqual(self.ctl("set-turnaround", "--session", ids["training"], "0").returncode, 0)
        self.assertEqual(of(), {"patient": 500_000, "training": 0})
        for refused in (("--session", "999", "20"), ("--session", ids["training"], "0.5"), ("2000000",)):
            self.assertNotEqual(self.ctl("set-turnaround", *refused).returncode, 0, refused)
        self.assert_refused(INVALID_ARGUMENT, "it is from 1 us to 1 s", turnaround_us=0.5)

    def test_quotas(self):
        self.start_daemon("--max-sessions", "2")
        self.session()
        self.session()
        self.assert_refused(RESOURCE_EXHAUSTED, "all 2 sessions are in use")

    def test_daemon_of_another_user_refuses(self):
        if os.getuid() != 0:
            self.skipTest("only root can become another user")
        os.chmod(self.directory, 0o711)
        self.start_daemon("--allow-uid", "12345")
        # Root itself is always let in; somebody else who is not on the list is not.
        child = os.fork()
        if child == 0:
            os.setgid(54321)
            os.setuid(54321)
            try:
                Session(self.socket_path, table=0)
            except Refused as refused:
                os._exit(0 if refused.code in (PERMISSION_DENIED, FAILED_PRECONDITION) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
