#!/usr/bin/env python3
"""tallyd with a scripted executor: executors are started, replaced, counted, and ended."""
import os
import re
import shutil
import signal
import subprocess
import unittest

from support.daemon_fixture import BEST_EFFORT, HIGH, OPEN_SESSION, DaemonTest, free_port, hello, is_alive, wait_until

INVALID_ARGUMENT, UNAVAILABLE = 3, 14


class Supervision(DaemonTest):
    def executors(self):
        return self.ctl_json("executors")

    def test_one_executor_per_domain_and_class(self):
        self.start_daemon()
        for arguments in ({"priority": HIGH}, {"priority": HIGH}, {"priority": BEST_EFFORT}, {"domain": "own"}):
            self.session(**arguments)
        rows = self.executors()
        uid = os.getuid()
        self.assertEqual({row["domain"]: row["num_sessions"] for row in rows},
                         {f"high:{uid}": 2, f"best-effort:{uid}": 1, f"own:{uid}": 1})

    def test_executors_are_told_to_deschedule_if_asked(self):
        """Whether they do is seen on a GPU only: the software driver has no GPU channels."""
        self.start_daemon("--policy", "look-ahead", "--suspend-best-effort")
        self.session(priority=BEST_EFFORT)
        (row,) = self.executors()
        with open(f"/proc/{row['pid']}/cmdline", "rb") as words:
            self.assertIn(b"--suspend", words.read().split(b"\0"))
        self.assertEqual((row["suspension"], row["num_suspensions"]), ("off", 0))

    def test_shared_contexts_put_both_classes_into_one_executor(self):
        self.start_daemon("--share-contexts")
        for arguments in ({"priority": HIGH}, {"priority": BEST_EFFORT}, {"domain": "own"}):
            self.session(**arguments)
        uid = os.getuid()
        self.assertEqual({row["domain"]: row["num_sessions"] for row in self.executors()}, {f"mixed:{uid}": 2, f"own:{uid}": 1})
        self.assertEqual(sorted((row["class"], row["domain"]) for row in self.ctl_json("ps")),
                         [("best-effort", f"mixed:{uid}"), ("best-effort", f"own:{uid}"), ("high", f"mixed:{uid}")])

    def domain_of(self, session):
        return next(row["domain"] for row in self.ctl_json("ps") if row["id"] == session.id)

    def test_a_program_of_long_blocks_has_a_context_of_its_own_the_next_time(self):
        cache, uid = os.path.join(self.directory, "cache"), os.getuid()
        daemon = self.start_daemon("--share-contexts", "--cache-directory", cache)
        first = self.session(priority=BEST_EFFORT, tenant="long-blocks")
        remembered = (f"session {first.id} (long-blocks): blocks of kernel scripted ran on for 2.9 ms: the next time that this "
                      "program starts it gets a context of its own")
        wait_until(lambda: remembered in self.log_of(daemon), "it is remembered")
        self.assertEqual(self.domain_of(first), f"mixed:{uid}")
        daemon.terminate()
        daemon.wait(60)

        daemon = self.start_daemon("--share-contexts", "--cache-directory", cache)
        wait_until(lambda: self.ctl_json("ps"), "its executor has come back")
        alone = self.session(priority=BEST_EFFORT)  # this process, whatever it calls itself
        self.assertRegex(self.domain_of(alone), f"^long-blocks-[0-9a-f]{{16}}:{uid}$")
        self.assertIn(f"session {alone.id}: its program gets a context of its own: when it shared one, blocks of kernel "
                      "scripted ran on for 2.9 ms", self.log_of(daemon))
        self.assertEqual(self.domain_of(self.session(priority=HIGH)), f"mixed:{uid}", "a service has no gates")
        self.assertEqual(self.domain_of(self.session(domain="own")), f"own:{uid}", "it says where")
        other = subprocess.Popen([*OPEN_SESSION, self.socket_path, str(BEST_EFFORT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.end, other)
        other_id = int(other.stdout.readline().split()[0])
        self.assertEqual([row["domain"] for row in self.ctl_json("ps") if row["id"] == other_id], [f"mixed:{uid}"])
        shutil.rmtree(os.path.join(cache, "long-blocks"))
        self.assertEqual(self.domain_of(self.session(priority=BEST_EFFORT)), f"mixed:{uid}", "it is forgotten")

    def test_where_no_context_is_shared_a_program_of_long_blocks_is_as_any(self):
        cache = os.path.join(self.directory, "cache")
        daemon = self.start_daemon("--share-contexts", "--cache-directory", cache)
        self.session(priority=BEST_EFFORT, tenant="long-blocks").close()
        wait_until(lambda: "the next time that this program starts" in self.log_of(daemon), "it is remembered")
        daemon.terminate()
        daemon.wait(60)
        self.start_daemon("--cache-directory", cache)
        self.assertEqual(self.domain_of(self.session(priority=BEST_EFFORT)), f"best-effort:{os.getuid()}")

    def test_killed_executor_ends_its_sessions_only_and_is_replaced_at_once(self):
        self.start_daemon()
        victim, survivor = self.session(priority=BEST_EFFORT), self.session(priority=HIGH)
        before = {row["class"]: row["pid"] for row in self.executors()}
        os.kill(before["best-effort"], signal.SIGKILL)
        # One that it takes while it dies is lost with it; programs then ask again.
        wait_until(lambda: not is_alive(before["best-effort"]), "it has died")
        fresh = self.session(priority=BEST_EFFORT)  # whether tallyd knows it or not
        wait_until(lambda: not victim.is_open(), "the client of the killed executor sees the end")
        self.assertTrue(survivor.is_open() and fresh.is_open())
        after = {row["class"]: row["pid"] for row in self.executors()}
        self.assertEqual(after["high"], before["high"])
        self.assertNotEqual(after["best-effort"], before["best-effort"])
        self.assertEqual({row["id"] for row in self.ctl_json("ps")}, {survivor.id, fresh.id})

    def fault(self, daemon):
        """The process of an executor that has lost its context: it ends two seconds later."""
        known = lambda: re.findall(r"executor (\d+) of domain \S+ lost its context", self.log_of(daemon))
        before = len(known())
        self.session(priority=BEST_EFFORT, tenant="fault")
        return int(wait_until(lambda: known()[before:], "the fault is known")[0])

    def test_faulted_executor_takes_no_new_session(self):
        port = free_port()
        daemon = self.start_daemon(metrics=f"127.0.0.1:{port}")
        self.session(priority=HIGH)
        self.fault(daemon)
        fresh = self.session(priority=BEST_EFFORT, tenant="next")
        wait_until(lambda: len(self.executors()) == 2, "the faulted executor has ended")
        self.assertTrue(fresh.is_open())
        page = self.scrape(port)
        self.assertIn(f'tally_executor_faults_total{{domain="best-effort:{os.getuid()}"}} 1', page)
        self.assertIn(f'tally_executor_failures_total{{domain="high:{os.getuid()}"}} 0', page)

    def test_an_executor_that_ends_counts_as_a_domain_until_it_is_gone(self):
        config = os.path.join(self.directory, "config.json")
        with open(config, "w", encoding="ascii") as file:
            file.write('{"max_domains_per_user": 1}')
        faulted = self.fault(self.start_daemon("--config", config))
        self.session(tenant="next")  # waits for that
        self.assertFalse(is_alive(faulted), "there were two at once")

    def test_a_user_whose_programs_fault_one_after_another_waits_for_the_next_executor(self):
        daemon = self.start_daemon()
        for _ in range(2):
            self.fault(daemon)
        self.assertNotIn("in a row", self.log_of(daemon))

        def has_waited():
            self.session(tenant="next")
            if re.search(r"user \d+: \d+ executors in a row have failed: the next starts in \d+ ms", self.log_of(daemon)):
                return True
            self.fault(daemon)  # on a busy machine the pause was over by then: after each fault it is twice as long
            return False
        wait_until(has_waited, "it waits for the next executor", 60)

    def test_executor_that_cannot_start_says_why_to_the_client(self):
        self.start_daemon(env={"TALLY_SCRIPT_START": "fail"})
        self.assert_refused(UNAVAILABLE, "no driver here, says the script")
        self.assert_refused(UNAVAILABLE, "no driver here, says the script")  # at once, from memory

    def test_executor_that_dies_in_its_start_is_an_answer_not_a_hang(self):
        self.executor = "/bin/false"
        self.start_daemon()
        self.assert_refused(UNAVAILABLE, "ended with exit status 1 before it was ready")

    def test_executor_that_hangs_in_its_start_is_killed(self):
        config = os.path.join(self.directory, "config.json")
        with open(config, "w", encoding="ascii") as file:
            file.write('{"executor_start_limit_seconds": 1}')
        self.start_daemon("--config", config, env={"TALLY_SCRIPT_START": "hang"})
        self.assert_refused(UNAVAILABLE, "not ready after 1 s")

    def test_idle_executor_ends(self):
        self.start_daemon("--executor-idle-seconds", "1")
        session = self.session()
        (row,) = self.executors()
        session.close()
        wait_until(lambda: not is_alive(row["pid"]), "the idle executor has ended")
        wait_until(lambda: not self.executors(), "and is forgotten")
        self.assertEqual(self.noted_executors(), [])

    def test_many_sessions_at_once_wait_until_their_executor_reads(self):
        self.start_daemon()
        self.session()
        (executor,) = self.executors()
        os.kill(executor["pid"], signal.SIGSTOP)
        clients = []
        for _ in range(450):
            clients.append(self.connect())
            clients[-1].send(hello())
        # Answered in the order in which they came: whatever was refused, was refused before this.
        self.assert_refused(INVALID_ARGUMENT, "priority class 7", priority=7)
        os.kill(executor["pid"], signal.SIGCONT)
        for client in clients:
            self.assert_gets_session(client)

    def test_killed_client_leaves_nothing(self):
        self.start_daemon()
        child = subprocess.Popen([*OPEN_SESSION, self.socket_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        self.assertEqual([row["pid"] for row in self.ctl_json("ps")], [child.pid])
        child.kill()
        child.communicate()
        wait_until(lambda: not self.ctl_json("ps"), "the session of the dead client is gone")


if __name__ == "__main__":
    unittest.main(verbosity=2)
