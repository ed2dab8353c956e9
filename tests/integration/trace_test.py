#!/usr/bin/env python3
"""tallyctl trace over real programs on the software GPU."""
import os
import stat
import subprocess
import sys
import unittest

from support.chrome_trace import BadTrace, ChromeTrace
from support.daemon_fixture import DaemonTest, program, wait_until
from support.full_stack import FullStackTest, not_built

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "scheduling_case.py")
MISSING = not_built()


class Tracing:
    def trace(self, seconds="0.5"):
        path = os.path.join(self.directory, "trace.json")
        result = self.ctl("trace", "--seconds", seconds, "-o", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(path, encoding="ascii") as file:
            return ChromeTrace(file.read())


class Usage(Tracing, DaemonTest):
    def test_wrong_usage_is_one_sentence(self):
        self.start_daemon()
        for wrong in ((), ("-o", "x", "--seconds", "0"), ("-o", "x", "--seconds", "61"), ("-o", "x", "--seconds", "-1"),
                      ("-o", "x", "--seconds", "nan"), ("-o", "x", "--seconds", "soon")):
            result = self.ctl("trace", *wrong)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)

    def test_what_cannot_be_written_is_said_at_once(self):
        self.start_daemon()
        result = self.ctl("trace", "--seconds", "50", "-o", "/nowhere/trace.json")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        self.assertIn("cannot write '/nowhere/trace.json'", result.stderr)
        result = self.ctl("trace", "--seconds", "0.1", "-o", "/dev/full")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write '/dev/full'", result.stderr)

    @unittest.skipIf(os.geteuid() != 0, "only root makes devices")
    def test_without_tallyd_a_device_stays_one(self):
        device = os.path.join(self.directory, "null")
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self.assertNotEqual(self.ctl("trace", "--seconds", "0.01", "-o", device).returncode, 0)
        self.assertTrue(stat.S_ISCHR(os.stat(device).st_mode))

    def test_without_tallyd_no_file_is_left(self):
        path = os.path.join(self.directory, "trace.json")
        result = self.ctl("trace", "-o", path)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no tallyd serves", result.stderr)
        self.assertFalse(os.path.exists(path))

    def test_nothing_runs(self):
        self.start_daemon()
        self.assertEqual(dict(self.trace("0.05").slices), {})

    def test_an_executor_that_records_nothing_is_named(self):
        self.start_daemon()
        self.session()  # of the scripted executor
        self.assertRegex(self.trace("0.05").whole["otherData"]["not recorded"], r"^executor \d+ \(.*\): it did not record$")


@unittest.skipIf(MISSING, f"not built: {MISSING}")
class RealPrograms(Tracing, FullStackTest):
    def test_who_ran_and_who_waited(self):
        self.start_daemon("--policy", "tally")
        self.start_under_tally(sys.executable, CASES, "requests", "20", "10", priority="high",
                               options=("--name", "service", "--slo", "p99=1us"))
        self.start_under_tally(sys.executable, CASES, "forever", "200", options=("--name", "training"))
        launches = lambda: {row["tenant"]: row["kernel_launches"] for row in self.ctl_json("ps")}
        wait_until(lambda: min(launches().get("service", 0), launches().get("training", 0)) > 0, "both work", 60)
        # Whether one waits for the other within a second is chance.
        for _ in range(5):
            trace = self.trace("1")
            waits = {one["name"] for one in trace.of("training", ": launches")}
            if "held: high-priority work" in waits:
                break
        self.assertIn("held: high-priority work", waits)
        service, training = trace.of("service (high", ": on the GPU"), trace.of("training (best-effort", ": on the GPU")
        self.assertTrue({one["name"] for one in service} <= {"spin", "spin (goes on)"})
        self.assertGreater(len(service), 3)
        self.assertGreater(len(training), 0)
        requests = trace.of("service", "requests, p99=1us")
        self.assertGreater(len(requests), 3)
        # A request has its kernel within it: the two clocks are one.
        inner = [one for one in service if any(
            outer["ts"] - 500 <= one["ts"] and one["ts"] + one["dur"] <= outer["ts"] + outer["dur"] + 500 for outer in requests)]
        self.assertGreater(len(inner), len(service) // 2)
        # As many arrows as runs on the GPU, each from the launch to where it runs.
        self.assertEqual(len(trace.flows), len(service) + len(training))
        for ends in trace.flows.values():
            self.assertEqual(ends["s"]["pid"], ends["f"]["pid"])
            self.assertLess(ends["s"]["ts"], ends["f"]["ts"] + 500)
        self.assertEqual(trace.whole["otherData"]["operations not recorded"], "0")

    def test_launches_that_come_fast_share_a_record(self):
        self.start_daemon()
        self.start_under_tally(sys.executable, CASES, "forever", "1", options=("--name", "fast"))
        wait_until(lambda: any(row["kernel_launches"] for row in self.ctl_json("ps")), "it works", 60)
        before = self.ctl_json("ps")[0]["kernel_launches"]
        trace = self.trace("1")
        after = self.ctl_json("ps")[0]["kernel_launches"]
        runs = [one for one in trace.of("fast", ": launches") if "operations" in one["args"]]
        recorded = sum(one["args"]["operations"] for one in runs if one["name"].startswith("spin"))
        self.assertLess(len(runs), 30_000)
        self.assertLessEqual(recorded, after - before)
        self.assertGreater(recorded, 0)

    def record_meanwhile(self, seconds):
        recording = subprocess.Popen([program("tallyctl"), "--socket", self.socket_path, "trace", "--seconds", seconds, "-o",
                                      os.path.join(self.directory, "first.json")], stdout=subprocess.DEVNULL)
        self.addCleanup(self.end, recording)
        return recording

    def test_one_at_a_time_and_again(self):
        self.start_daemon()
        self.start_under_tally(sys.executable, CASES, "forever", "100", options=("--name", "busy"))
        wait_until(lambda: any(row["kernel_launches"] for row in self.ctl_json("ps")), "it works", 60)
        first = [self.record_meanwhile("3")]

        def is_second_refused():
            if first[0].poll() is not None:  # the second one came first, or it took too long to come
                first[0] = self.record_meanwhile("3")
            return "already" in self.ctl("trace", "--seconds", "0.01", "-o", os.devnull).stderr

        wait_until(is_second_refused, "it is refused", 60)
        self.assertEqual(first[0].wait(30), 0)
        for _ in range(2):
            self.assertTrue(self.trace("0.2").of("busy", ": on the GPU"))

    def test_programs_that_come_and_go_meanwhile(self):
        self.start_daemon()
        trace = subprocess.Popen([program("tallyctl"), "--socket", self.socket_path, "trace", "--seconds", "6", "-o",
                                  os.path.join(self.directory, "trace.json")], stdout=subprocess.DEVNULL)
        self.addCleanup(self.end, trace)
        keeper = self.start_under_tally(sys.executable, CASES, "endless", options=("--name", "endless"))
        self.assertEqual(keeper.stdout.readline(), b"launched\n")
        short = self.start_under_tally(sys.executable, CASES, "many", "20", "10", options=("--name", "short"))
        self.assertEqual(short.communicate(timeout=60)[0], b"OK\n")
        self.assertEqual(trace.wait(60), 0)


class TheTestItself(unittest.TestCase):
    def test_what_no_viewer_takes_is_an_error(self):
        def text(*events):
            name = '{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"p"}}'
            return '{"traceEvents":[%s],"displayTimeUnit":"ns","otherData":{}}' % ",".join((name, *events))
        slice_at = lambda ts, dur, pid=1: f'{{"ph":"X","pid":{pid},"tid":2,"ts":{ts},"dur":{dur},"name":"k","args":{{}}}}'
        ChromeTrace(text(slice_at(0, 10), slice_at(2, 3), slice_at(10, 1)))
        start = '{"ph":"s","cat":"c","name":"l","id":1,"pid":1,"tid":2,"ts":%d}'
        for bad in (slice_at(0, -1), slice_at(0, 1, pid=7), start % 0, slice_at(0, 1).replace('"k"', "7"),
                    slice_at("NaN", 1), slice_at(0, 1).replace("X", "B")):
            with self.assertRaises(BadTrace, msg=bad):
                ChromeTrace(text(bad))
        with self.assertRaises(BadTrace):
            ChromeTrace(text(slice_at(0, 10), slice_at(5, 10)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
