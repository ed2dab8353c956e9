"""Workers of bench/colocation that end, or do not answer: the cell fails with the reason, and the rest goes on."""
import contextlib
import os
import sys
import tempfile
import unittest
from unittest import mock

import modes
import plan
import stage
import ways

SERVICE = """
import json, os, sys, time
print(json.dumps({"ready": True, "digest": "d"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if os.path.exists(NOTE):
        what = open(NOTE).read()
        os.remove(NOTE)
        if what == "end":
            sys.exit("illegal access")
        time.sleep(60)
    if "calibrate" in request:
        print(json.dumps({"at_ns": time.monotonic_ns(), "offset_ns": 7000, "error_ns": 500}), flush=True)
        continue
    print("a library says something", flush=True)
    print(json.dumps({"latencies_ms": [1.0] * len(request["arrivals"]), "unserved": 0, "wrong": 0, "asked_ns": [10000],
                      "began_ns": [13000], "ended_ns": [14500]}), flush=True)
"""
TRAINING = """
import json, sys, time
print(json.dumps({"ready": True, "digest": "d"}), flush=True)
for line in sys.stdin:
    begin = time.monotonic()
    assert "train" in json.loads(line)
    assert "stop" in json.loads(sys.stdin.readline())
    print(json.dumps({"completions": [begin + 0.1 * (step + 1) for step in range(100)]}), flush=True)
"""
NEVER_STARTS = "import sys; sys.exit('no such model')"


class StageTest(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.note = os.path.join(self.stack.enter_context(tempfile.TemporaryDirectory()), "note")
        self.programs = {"service": SERVICE.replace("NOTE", repr(self.note)), "training": TRAINING}
        for name, value in (("LIMIT_S", 20), ("GRACE_S", 0), ("LEAD_S", 0.1)):
            self.stack.enter_context(mock.patch.object(stage, name, value))
        test = self

        class Place(modes.Place):
            def command(self, words, role):
                return [sys.executable, "-c", test.programs[role]]

        @contextlib.contextmanager
        def enter(root, name, smoke):  # pylint: disable=unused-argument
            if name == "mps":
                raise ways.Failed("no MPS here")
            yield Place(name, ways.Native())

        self.stack.enter_context(mock.patch.object(modes, "enter", enter))

    def start(self):
        workers = {("service", "s"): 1, ("training", "t"): 2}
        return self.stack.enter_context(stage.Stage("", {"native": workers, "mps": workers}, False, lambda text: None, 20))

    @staticmethod
    def cell(mode="time-slicing", count=1):
        return plan.Cell(mode, "s", 0.5, "t" if count else "", count, 0)

    def leave_note(self, what):
        with open(self.note, "w", encoding="utf-8") as text:
            text.write(what)

    def measure(self, players, **cell):
        return players.measure(self.cell(**cell), 0.2, 100)

    def test_numbers_come_back(self):
        players = self.start()
        with mock.patch.object(stage, "LEAD_S", 2):  # the trainings are at work by then
            record = self.measure(players, count=2)
        self.assertEqual(record["latencies_ms"], [1.0] * 10)
        self.assertEqual(len(record["rates"]), 2)
        self.assertEqual((record["waits_us"], record["gpu_us"], record["clock_error_us"]), ([10.0], [1.5], 0.5))
        for rate in record["rates"]:
            self.assertAlmostEqual(rate, 10, delta=1.5)
        self.assertEqual(self.measure(players, mode="alone", count=0)["rates"], [])
        self.assertEqual(players.digests(), {"native|service|s": "d", "native|training|t": "d"})

    def test_a_worker_that_ends_is_started_again_once(self):
        players = self.start()
        self.leave_note("end")
        with self.assertRaisesRegex(ways.Failed, "illegal access"):
            self.measure(players)
        self.assertEqual(len(self.measure(players)["rates"]), 1)
        self.leave_note("end")
        with self.assertRaisesRegex(ways.Failed, "illegal access"):
            self.measure(players)
        with self.assertRaisesRegex(ways.Failed, "has ended, again: illegal access"):
            self.measure(players)

    def test_a_worker_that_does_not_answer_is_ended(self):
        players = self.start()
        self.leave_note("sleep")
        with mock.patch.object(modes.Place, "state", lambda place: {"place": place.name}), \
                mock.patch.object(stage, "LIMIT_S", 1), \
                self.assertRaisesRegex(ways.Failed, "native: service s: no '{' within") as caught:
            self.measure(players)
        self.assertEqual(caught.exception.state, {"place": "native"})
        self.assertEqual(len(self.measure(players)["latencies_ms"]), 10)

    def test_a_place_that_is_not_there(self):
        with self.assertRaisesRegex(ways.Failed, "no MPS here"):
            self.measure(self.start(), mode="mps")

    def test_a_worker_that_never_starts(self):
        self.programs["training"] = NEVER_STARTS
        players = self.start()
        with self.assertRaisesRegex(ways.Failed, "no such model"):
            self.measure(players)
        self.assertEqual(len(self.measure(players, mode="alone", count=0)["latencies_ms"]), 10)


class ReplyTest(unittest.TestCase):
    def test_lines_that_come_together_are_read_one_by_one(self):
        from child import Child
        child = Child([sys.executable, "-c", "print('x'); print('{\"a\": 1}'); print('{\"b\": 2}', flush=True); input()"], "c")
        self.assertEqual(child.answer(20), {"a": 1})
        self.assertEqual(child.answer(20), {"b": 2})
        with self.assertRaisesRegex(ways.Failed, "within"):
            child.answer(0.1)
        child.end()


if __name__ == "__main__":
    unittest.main()
