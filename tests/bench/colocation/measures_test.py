"""Numbers of bench/colocation: a wrong one would be believed."""
import ctypes
import dataclasses
import unittest

import measures
import stamps
import trace


def record(mode, latency, service="s", training="", repetition=0, load=0.5, rates=(), count=0, unserved=0):
    made = {"status": "done", "mode": mode, "service": service, "load": load, "training": training, "count": count,
            "repetition": repetition, "seconds": 4, "capacity": 100, "trace": "bursty",
            "burstiness": dataclasses.asdict(trace.KINDS["bursty"]), "rates": list(rates), "wrong": 0, "unserved": unserved}
    if service:
        times = trace.arrivals(4, load, 100, measures.seed_of(made))
        made["latencies_ms"] = [latency(index) for index in range(len(times))]
    return made


class RateTest(unittest.TestCase):
    def test_steps_that_are_partly_in_the_window(self):
        completions = [1, 2, 3, 4, 5, 6]
        self.assertAlmostEqual(measures.rate(0, completions, 2, 2), 1)
        self.assertAlmostEqual(measures.rate(0, completions, 2.25, 2.5), 1)
        self.assertAlmostEqual(measures.rate(0, [10], 2, 4), 0.1)

    def test_steps_that_wait_count_when_they_go_on(self):
        self.assertAlmostEqual(measures.rate(0, [1, 2, 10], 0, 2), 1)
        self.assertAlmostEqual(measures.rate(0, [1, 2, 10], 2, 4), 0.125)

    def test_nothing_happened(self):
        self.assertEqual(measures.rate(0, [], 1, 2), 0)


class StampsTest(unittest.TestCase):
    def make(self):
        made = stamps.Stamps.__new__(stamps.Stamps)  # without a GPU
        made.most, made.stamps, made.is_captured, self.launched = 6, (ctypes.c_uint64 * 8)(), False, []
        made._launch = lambda place, stream=None: self.launched.append((place, stream))
        return made

    def test_those_of_a_graph_are_taken_after_each_request(self):
        made = self.make()
        self.assertEqual(made.around(lambda: "output", 99), "output")
        self.assertEqual(self.launched, [(6, 99), (7, 99)])
        for request in range(4):
            made.begin(request)
            made.end(request)
            made.stamps[6:] = [10 * request, 10 * request + 5]
            made.collect(request)
        self.assertEqual(len(self.launched), 2, "they come with the graph")
        self.assertEqual([made.of(request) for request in (1, 2, 3)], [(10, 15), (20, 25), (30, 35)])

    def test_others_are_launched_around_each_request(self):
        made = self.make()
        for request in range(4):
            made.begin(request)
            made.end(request)
            made.collect(request)
        self.assertEqual([place for place, _ in self.launched], [0, 1, 2, 3, 4, 5, 0, 1])


class FirstKernelTest(unittest.TestCase):
    def test_the_clocks_offset_drifts_on_a_line(self):
        before, after = ({"at_ns": 0, "offset_ns": 1000, "error_ns": 2000}, {"at_ns": 10_000, "offset_ns": 3000, "error_ns": 3000})
        waits, error = stamps.waits_us([0, 5_000, 10_000], [4_000, 8_000, 12_000], before, after)
        self.assertEqual((waits, error), ([5.0, 5.0, 5.0], 3.0))

    def test_shares_by_size_and_by_what_was_before(self):
        """Requests take 1 ms; every second one comes while the one before it is not complete, and only those wait."""
        mine, alone = record("tally", lambda index: 1, training="t", count=1), record("alone", lambda index: 1)
        behind = measures.was_behind(mine)
        self.assertTrue(any(behind) and not all(behind))
        alone["waits_us"] = [10.0] * len(behind)
        mine["waits_us"] = [150.0 if is_behind else 10.0 for is_behind in behind]
        mine["clock_error_us"] = alone["clock_error_us"] = 4.0
        found = measures.first_kernels([mine], [alone])
        share = sum(behind) / len(behind)
        for got, wanted in zip(found["shares"], (1 - share, share, 0, 0)):
            self.assertAlmostEqual(got, wanted)
        self.assertEqual((found["p99_after_pause"], found["p99_behind"], found["p99_alone"], found["clock_error"]), (10, 150, 10, 4))
        mine["waits_us"][0] = 2000.0
        mine["waits_us"][1] = 5000.0
        self.assertEqual([round(share * len(behind)) for share in measures.first_kernels([mine], [alone])["shares"]][2:], [1, 1])

    def test_without_stamps_there_is_nothing(self):
        self.assertEqual(measures.first_kernels([record("tally", lambda index: 1)], [record("alone", lambda index: 1)]), {})


class ThereAndBackTest(unittest.TestCase):
    def test_is_what_the_gpu_does_not_take(self):
        """Natively a request takes 1 ms, 0.9 of it on the GPU; in the mode 1.2, of which a slower clock makes 1.05."""
        mine, alone = record("tally", lambda index: 1.2, load=0.01), record("alone", lambda index: 1, load=0.01)
        self.assertEqual(measures.there_and_back([mine]), [])
        self.assertNotIn("way_p50", measures.Results([mine, alone]).row("tally", "s", 0.01, "", 0))
        mine["gpu_us"] = [1050.0] * len(mine["latencies_ms"])
        alone["gpu_us"] = [900.0] * len(alone["latencies_ms"])
        row = measures.Results([mine, alone]).row("tally", "s", 0.01, "", 0)
        self.assertAlmostEqual(row["way_p50"], 150)
        self.assertAlmostEqual(row["way_p99_alone"], 100)
        self.assertAlmostEqual(row["way_p50_more"], 0.05)
        self.assertEqual(len(row["way_p50_more_by_run"]), 1)
        self.assertAlmostEqual(row["way_p50_more_by_run"][0], 0.05)

    def test_what_the_service_did_before_a_request_is_not_its_own_time(self):
        mine = {**record("tally", lambda index: 1.2), "own_ms": [0.7, 0.8]}
        self.assertEqual(measures.service_times(mine), [0.7, 0.8])


class RowTest(unittest.TestCase):
    def rows(self, *records):
        return {(row["mode"], row["training"]): row for row in measures.Results(records).rows()}

    def test_overheads_shares_and_throughput(self):
        rows = self.rows(record("alone", lambda index: 2), record("alone", None, service="", training="t", rates=[10], load=0),
                         record("tally", lambda index: 3, training="t", rates=[4], count=1))
        row = rows["tally", "t"]
        self.assertAlmostEqual(row["p99_overhead"], 0.5)
        self.assertAlmostEqual(row["p99_overhead_interval"][0], 0.5)
        self.assertAlmostEqual(row["p99_overhead_interval"][1], 0.5)
        self.assertAlmostEqual(row["best_effort_share"], 0.4)
        self.assertAlmostEqual(row["system_throughput"], 1.4)

    def test_a_service_that_served_nothing_in_time_alone_is_no_measure_of_throughput(self):
        """It would end the bench, and all that was measured would stay unsaid."""
        rows = self.rows(record("alone", lambda index: 1e5), record("alone", None, service="", training="t", rates=[10], load=0),
                         record("tally", lambda index: 1e5, training="t", rates=[4], count=1))
        self.assertNotIn("system_throughput", rows["tally", "t"])
        self.assertAlmostEqual(rows["tally", "t"]["best_effort_share"], 0.4)

    def test_what_a_service_leaves_is_by_its_measured_busy_share_not_by_its_nominal_load(self):
        """200 requests in 4 s of 3 ms on the GPU alone in the mode: 15 % busy, though the load is 50 %. Beside the training they take 9 ms."""
        times = {("alone", ""): 2000.0, ("tally", ""): 3000.0, ("tally", "t"): 9000.0}
        alone, in_mode, beside = (record(mode, lambda index: 1, training=training, rates=[4] if training else (), count=int(bool(training)))
                                  for mode, training in times)
        solo = record("alone", None, service="", training="t", rates=[10], load=0)
        self.assertNotIn("share_of_the_rest", self.rows(alone, in_mode, beside, solo)["tally", "t"])
        for made, time in zip((alone, in_mode, beside), times.values()):
            made["gpu_us"] = [time] * len(made["latencies_ms"])
        row = self.rows(alone, in_mode, beside, solo)["tally", "t"]
        self.assertAlmostEqual(row["busy"], 0.15)
        self.assertAlmostEqual(row["share_of_the_rest"], 0.4 / 0.85)
        self.assertAlmostEqual(self.rows(alone, beside, solo)["tally", "t"]["busy"], 0.1)

    def test_a_mode_has_two_baselines(self):
        """Alone under the mode a request is quicker than natively; sharing costs it half of that again."""
        rows = self.rows(record("alone", lambda index: 4), record("tally", lambda index: 2), record("tally", lambda index: 3, training="t", count=1),
                         record("time-slicing", lambda index: 6, training="t", count=1), record("mps", lambda index: 6, training="t", count=1))
        row = rows["tally", "t"]
        for name in ("p99", "own_p99"):
            self.assertAlmostEqual(row[f"{name}_overhead"], -0.25)
            self.assertAlmostEqual(row[f"{name}_over_alone_in_mode"], 0.5)
        self.assertAlmostEqual(rows["time-slicing", "t"]["p99_over_alone_in_mode"], 0.5)  # natively alone is alone in that mode
        self.assertNotIn("p99_over_alone_in_mode", rows["mps", "t"])
        self.assertNotIn("p99_over_alone_in_mode", rows["tally", ""])

    def test_a_requests_own_time_is_without_the_queue(self):
        """One server that takes 8 ms for each request, against 4 ms: latencies grow by more, own times double."""
        def served(mode, own_s, **more):
            made = record(mode, lambda index: 0, **more)
            free, latencies = 0.0, []
            for arrival in measures.trace_of(made):
                free = max(free, arrival) + own_s
                latencies.append((free - arrival) * 1e3)
            return {**made, "latencies_ms": latencies}
        row = self.rows(served("alone", 0.004), served("tally", 0.008, training="t", count=1))["tally", "t"]
        self.assertAlmostEqual(row["own_p50"], 8, places=6)
        self.assertAlmostEqual(row["own_p99_overhead"], 1, places=6)
        self.assertGreater(row["p99_overhead"], 1.1)

    def test_several_trainings_are_summed(self):
        rows = self.rows(record("alone", lambda index: 2), record("alone", None, service="", training="t", rates=[10], load=0),
                         record("tally", lambda index: 2, training="t", rates=[3, 2], count=2))
        self.assertAlmostEqual(rows["tally", "t"]["best_effort_share"], 0.5)

    def test_only_repetitions_that_were_measured_alone_count(self):
        rows = self.rows(record("alone", lambda index: 2), record("tally", lambda index: 2, training="t", count=1),
                         record("tally", lambda index: 99, training="t", repetition=1, count=1),
                         record("alone", lambda index: 50, repetition=2))
        self.assertEqual(rows["tally", "t"]["repetitions"], 1)
        self.assertEqual(rows["tally", "t"]["max"], 2)
        self.assertEqual(rows["tally", "t"]["max_alone"], 2)

    def test_each_mode_is_compared_with_runs_alone_of_its_own_time(self):
        alone = [{**record("alone", lambda index: 2), "group": "alone,tally"}, {**record("alone", lambda index: 4), "group": "mps"}]
        rows = {row["mode"]: row for row in self.rows(*alone, record("tally", lambda index: 2, training="t", count=1),
                                                      record("mps", lambda index: 4, training="t", count=1)).values()}
        self.assertAlmostEqual(rows["tally"]["p99_overhead"], 0)
        self.assertAlmostEqual(rows["mps"]["p99_overhead"], 0)

    def test_failed_cells_do_not_count(self):
        failed = {**record("tally", lambda index: 9, training="t", count=1), "status": "failed"}
        self.assertNotIn(("tally", "t"), self.rows(record("alone", lambda index: 2), failed))

    def test_the_interval_holds_the_truth_and_is_not_a_point(self):
        import random
        source = random.Random(1)
        alone = [record("alone", lambda index: 1 + source.random(), repetition=index) for index in range(3)]
        beside = [record("tally", lambda index: 2 + 2 * source.random(), training="t", repetition=index, count=1) for index in range(3)]
        low, high = self.rows(*alone, *beside)["tally", "t"]["p99_overhead_interval"]
        self.assertLess(low, 1)
        self.assertGreater(high, 0.99)
        self.assertLess(low, high)

    def test_requests_after_the_end_are_not_throughput(self):
        rows = self.rows(record("alone", lambda index: 1), record("alone", None, service="", training="t", rates=[1], load=0),
                         record("mps", lambda index: 1 if index < 100 else 1e6, training="t", rates=[0], count=1),
                         record("time-slicing", lambda index: 1, training="t", rates=[0], count=1, unserved=50))
        self.assertAlmostEqual(rows["mps", "t"]["system_throughput"], 0.5)
        self.assertAlmostEqual(rows["time-slicing", "t"]["system_throughput"], 0.75)

    def test_the_quantile_of_drawn_blocks(self):
        ordered = {"samples": [(value, int(value > 50)) for value in range(100, 0, -1)], "counts": {0: 50, 1: 50}}
        self.assertEqual(measures.weighted_quantile(ordered, {0: 1, 1: 1}, 0.905), 91)
        self.assertEqual(measures.weighted_quantile(ordered, {1: 2}, 0.905), 96)
        self.assertEqual(measures.weighted_quantile(ordered, {0: 2}, 0.905), 46)


if __name__ == "__main__":
    unittest.main()
