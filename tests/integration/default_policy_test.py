#!/usr/bin/env python3
"""Which policy is in force, with an executor whose driver accepts time slices or does not, and what is refused because of it."""
import os
import signal
import subprocess
import unittest

from support.daemon_fixture import BEST_EFFORT, HIGH, DaemonTest, program, wait_until

INVALID_ARGUMENT = 3
LOOK_AHEAD, TIME_SLICES = "look-ahead", "time-slices"


class DefaultPolicyTest(DaemonTest):
    def start(self, slices, *options):
        """A tallyd whose executors say that they have a GPU; `slices` says what its driver thinks of time slices."""
        return self.start_daemon(*options, driver="cuda", env={"TALLY_SCRIPT_SLICES": slices})

    def in_force(self):
        """By domain, without the user."""
        return {row["domain"].split(":")[0]: (row["policy"], row["policy_reason"]) for row in self.ctl_json("executors")}

    def assert_in_force(self, policy, reason, domain="best-effort"):
        wait_until(lambda: self.in_force().get(domain) == (policy, reason), f"{policy}: {reason}, not {self.in_force()}")

    def assert_said(self, daemon, policy, reason, domain="best-effort"):
        line = f"domain {domain}:{os.getuid()}: policy {policy}: {reason}"
        self.assertEqual(self.log_of(daemon).count(line), 1, self.log_of(daemon))

    def told(self, domain):
        """What the executor of a domain was told; a busy machine's may be late with its answer."""
        found = []
        wait_until(lambda: found.extend(row["remark"] for row in self.ctl_json("kernels") if row["domain"].startswith(domain)) or found,
                   "it answers")
        return found[0]

    def is_left_to_time_slices(self):
        return {"left to time slices": True, "": False}[self.told("best-effort")]


class Automatic(DefaultPolicyTest):
    def test_where_the_driver_accepts_time_slices_they_are_all_there_is(self):
        daemon = self.start("accept")
        self.session(priority=BEST_EFFORT)
        self.assert_in_force(TIME_SLICES, "the driver accepts them")
        self.session(priority=HIGH)
        self.session(domain="own")
        for domain in ("best-effort", "high", "own"):
            self.assert_in_force(TIME_SLICES, "the driver accepts them", domain)
            self.assert_said(daemon, TIME_SLICES, "the driver accepts them", domain)
        self.assertTrue(self.is_left_to_time_slices())
        self.assertIn("time-slices (the driver accepts them)", self.ctl("executors").stdout)
        wait_until(lambda: {row["time_slice_us"] for row in self.ctl_json("executors")} == {500, 1_000_000}, "they are set")
        for row in self.ctl_json("executors"):
            self.assertEqual((row["suspension"], row["is_time_slice_refused"]), ("off", False))
            with open(f"/proc/{row['pid']}/cmdline", "rb") as words:
                self.assertNotIn(b"--suspend", words.read().split(b"\0"))

    def test_each_gpu_has_time_slices_of_its_own(self):
        """A tenant called gpu-1 works on that one (scripted_executor.cc); the driver's own slice is 2000."""
        self.start_daemon(driver="cuda", env={"TALLY_SCRIPT_SLICES": "accept", "TALLY_SCRIPT_DEVICES": "2"})
        own, longest = 2000, 1_000_000

        def assert_slices(**by_domain):
            found = lambda: {row["domain"].split(":")[0].replace("-", "_"): (row["shortest_time_slice_us"], row["time_slice_us"])
                             for row in self.ctl_json("executors")}
            wait_until(lambda: found() == by_domain, f"{by_domain}, not {found()}")

        self.session(priority=HIGH, tenant="gpu-0")
        self.session(priority=BEST_EFFORT, tenant="gpu-1")
        assert_slices(high=(own, own), best_effort=(own, own))
        self.session(priority=HIGH, domain="other", tenant="gpu-1")
        assert_slices(high=(own, own), other=(longest, longest), best_effort=(1, 1))
        self.session(priority=BEST_EFFORT, tenant="gpu-0")  # it now works on both
        assert_slices(high=(longest, longest), other=(longest, longest), best_effort=(1, 1))
        self.session(priority=HIGH, domain="other", tenant="gpu-0")  # on the first GPU there are two now
        assert_slices(high=(own, own), other=(own, longest), best_effort=(1, 1))
        self.assertIn(f" {own} to {longest} ", self.ctl("executors").stdout)

    def test_the_gpu_is_held_while_best_effort_programs_are_there(self):
        self.start("accept")
        self.session(priority=HIGH)
        self.assert_in_force(TIME_SLICES, "the driver accepts them", "high")
        self.assertEqual(self.told("high"), "left to time slices")
        self.session(priority=BEST_EFFORT)
        wait_until(lambda: self.told("high") == "may hold the GPU", "there is somebody to hold it from")
        self.assertTrue(self.is_left_to_time_slices())
        os.kill(next(row["pid"] for row in self.ctl_json("executors") if row["domain"].startswith("best-effort")), signal.SIGKILL)
        wait_until(lambda: self.told("high") == "left to time slices", "he is gone")

    def test_an_executor_that_leaves_keeps_its_time_slice_until_it_is_gone(self):
        """What is left of it is still there for a service to wait for."""
        self.start("accept")
        slices = lambda: sorted(row["time_slice_us"] for row in self.ctl_json("executors"))
        self.session(priority=HIGH)
        endless = self.session(priority=BEST_EFFORT, tenant="endless")
        neighbour = self.session(priority=BEST_EFFORT)
        wait_until(lambda: slices() == [1, 1_000_000], "both are there")
        endless.close()
        wait_until(lambda: "retiring" in {row["state"] for row in self.ctl_json("executors")}, "its work goes on")
        self.session(priority=BEST_EFFORT)
        wait_until(lambda: slices() == [500, 500, 1_000_000], "there are two of best-effort programs")
        neighbour.close()
        wait_until(lambda: slices() == [1, 1_000_000], "it is gone")

    def test_where_the_driver_refuses_them_look_ahead_stays(self):
        daemon = self.start("refuse")
        self.session(priority=HIGH)
        self.session(priority=BEST_EFFORT)
        wait_until(lambda: "policy look-ahead: the driver refuses" in self.log_of(daemon), "although nobody asks")
        self.assert_in_force(LOOK_AHEAD, "the driver refuses time slices")
        self.assertFalse(self.is_left_to_time_slices())
        self.assertEqual(self.told("high"), "", "the GPU is not held then")
        self.assert_said(daemon, LOOK_AHEAD, "the driver refuses time slices")

    def test_a_driver_whose_time_slices_nobody_sees_counts_as_one_that_refuses(self):
        self.start("hide")
        self.session(priority=BEST_EFFORT)
        self.assert_in_force(LOOK_AHEAD, "the driver refuses time slices")

    def test_a_refusal_that_comes_late(self):
        daemon = self.start("accept")
        self.session(priority=HIGH)
        self.session(priority=BEST_EFFORT)
        self.assert_in_force(TIME_SLICES, "the driver accepts them")
        self.session(priority=BEST_EFFORT, tenant="take-back")
        self.assert_in_force(LOOK_AHEAD, "the driver refuses time slices")
        self.assertFalse(self.is_left_to_time_slices())
        self.assert_said(daemon, LOOK_AHEAD, "the driver refuses time slices")
        self.assertEqual(self.in_force()["high"][0], TIME_SLICES, "its own are as they should be")

    def test_the_software_gpu_has_none(self):
        daemon = self.start_daemon()
        self.session()
        self.assert_in_force(LOOK_AHEAD, "the software GPU has no time slices")
        self.assert_said(daemon, LOOK_AHEAD, "the software GPU has no time slices")
        self.assertIn("look-ahead (the software GPU has no time slices)", self.ctl("executors").stdout)

    def test_shared_contexts(self):
        self.start("accept", "--share-contexts")
        self.session(priority=BEST_EFFORT)
        self.assert_in_force(LOOK_AHEAD, "both classes share a context", "mixed")

    def test_time_slices_that_are_left_alone(self):
        self.start("accept", "--time-slice-us", "0")
        self.session()
        self.assert_in_force(LOOK_AHEAD, "time_slice_us is 0")

    def test_a_program_of_the_other_class_shares_the_context(self):
        self.start("accept")
        other, session = self.session(), self.session()
        self.assert_in_force(TIME_SLICES, "the driver accepts them")
        self.assertEqual(self.ctl("set-priority", str(session.id), "high").returncode, 0)
        self.assert_in_force(LOOK_AHEAD, "both classes share a context")
        self.assertFalse(self.is_left_to_time_slices())
        session.close()
        self.assert_in_force(TIME_SLICES, "the driver accepts them")
        self.assertTrue(other.is_open())

    def test_what_is_asked_for_by_name_wins(self):
        for policy in (LOOK_AHEAD, "none", "tally"):
            daemon = self.start("accept", "--policy", policy)
            session = self.session()
            self.assert_in_force(policy, "as configured")
            self.assertFalse(self.is_left_to_time_slices())
            session.close()
            wait_until(lambda: not self.ctl_json("ps"), "the session is gone")
            daemon.terminate()
            self.assertEqual(daemon.wait(60), 0)

    def test_executors_of_an_older_configuration_keep_theirs(self):
        first = self.start("accept", "--policy", "tally")
        self.session(priority=BEST_EFFORT, weight=300)
        first.kill()
        first.wait()
        self.start("accept")
        self.session(priority=BEST_EFFORT, weight=200)  # it runs there, where it means something
        self.session(priority=HIGH)
        self.assert_in_force("tally", "as configured")
        self.assert_in_force(TIME_SLICES, "the driver accepts them", "high")
        self.assert_refused(INVALID_ARGUMENT, "a level is ignored by the policy in force, time-slices", priority=HIGH, level=2)

    def test_the_next_tallyd_may_leave_time_slices_alone(self):
        first = self.start("accept")
        self.session(priority=BEST_EFFORT)
        self.assert_in_force(TIME_SLICES, "the driver accepts them")
        first.kill()
        first.wait()
        self.start("accept", "--time-slice-us", "0")
        self.assert_in_force(LOOK_AHEAD, "time_slice_us is 0")
        self.assertFalse(self.is_left_to_time_slices())

    def test_the_next_tallyd_knows_what_the_driver_said(self):
        first = self.start("hide")
        self.session(priority=BEST_EFFORT)
        self.assert_in_force(LOOK_AHEAD, "the driver refuses time slices")
        first.kill()
        first.wait()
        self.start("hide")
        self.assert_in_force(LOOK_AHEAD, "the driver refuses time slices")


class WhatIsIgnoredIsRefused(DefaultPolicyTest):
    def sentence(self, what, policy, honouring):
        return f"{what} is ignored by the policy in force, {policy}: it takes tallyd with --policy {honouring}"

    def test_of_programs_before_the_first_one_has_run(self):
        self.start("accept")
        for asked, what, honouring in (
                ({"weight": 300}, "a weight", "fair or tally"), ({"level": 2, "priority": HIGH}, "a level", "tally"),
                ({"slo": "p99=2ms", "priority": HIGH}, "an objective (--slo)", "look-ahead or tally-paper or tally"),
                ({"turnaround_us": 50}, "a turnaround threshold", "look-ahead or tally-paper or tally")):
            self.assert_refused(INVALID_ARGUMENT, self.sentence(what, TIME_SLICES, honouring), **asked)
        self.assertTrue(self.session(weight=100).is_open(), "that is what everybody has")

    def test_of_programs_on_the_software_gpu(self):
        self.start_daemon()
        self.assert_refused(INVALID_ARGUMENT, self.sentence("a weight", LOOK_AHEAD, "fair or tally"), weight=300)
        self.assert_refused(INVALID_ARGUMENT, self.sentence("a level", LOOK_AHEAD, "tally"), level=2)
        self.assertTrue(self.session(slo="p99=2ms", priority=HIGH, turnaround_us=50).is_open())

    def test_of_programs_that_run(self):
        self.start("accept")
        session = self.session()
        self.assert_in_force(TIME_SLICES, "the driver accepts them")
        for words, what, honouring in ((("set-weight", str(session.id), "300"), "a weight", "fair or tally"),
                                       (("set-level", str(session.id), "2"), "a level", "tally"),
                                       (("set-turnaround", "--session", str(session.id), "20"), "a turnaround threshold",
                                        "look-ahead or tally-paper or tally"),
                                       (("set-turnaround", "20"), "a turnaround threshold", "look-ahead or tally-paper or tally")):
            refused = self.ctl(*words)
            self.assertEqual((refused.returncode, refused.stderr),
                             (1, f"tallyctl: {self.sentence(what, TIME_SLICES, honouring)}\n"))
        self.assertEqual([(row["weight"], row["level"]) for row in self.ctl_json("ps")], [(100, 0)])

    def test_of_the_operator(self):
        for options, words in (
                (("--driver", "cuda", "--starvation-bound", "100ms"), self.sentence("a starvation bound", TIME_SLICES, "look-ahead or tally")),
                (("--driver", "sim", "--policy", "fair", "--starvation-bound", "100ms"), self.sentence("a starvation bound", "fair", "look-ahead or tally")),
                (("--driver", "cuda", "--suspend-best-effort"), "'suspend_best_effort' is ignored by the policy in force, time-slices"),
                (("--driver", "cuda", "--transforms", "gate"), "'transforms' is ignored by the policy in force, time-slices"),
                (("--driver", "cuda", "--turnaround-us", "20"), "a turnaround threshold is ignored by the policy in force, time-slices"),
                (("--policy", "look-ahead", "--suspend-best-effort", "--share-contexts"), "suspend_best_effort does not go with share_contexts"),
                (("--policy", "time-slices"), "there is no policy 'time-slices'; there are auto (time-slices where the driver accepts them, else look-ahead)")):
            with self.subTest(options):
                refused = subprocess.run([program("tallyd"), "--socket", self.socket_path, *options], stderr=subprocess.PIPE, text=True,
                                         timeout=60, check=False)
                self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1), refused.stderr)
                self.assertIn(words, refused.stderr)


if __name__ == "__main__":
    unittest.main()
