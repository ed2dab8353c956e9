#!/usr/bin/env python3
"""Two programs and two GPUs, on the software driver: what happens on one GPU is about that GPU alone.

Services are on GPU 0 and never leave it idle, or make requests; trainings are on GPU 1 alone, on GPU 0 alone (to see
that the test can fail), or on both."""
import collections
import contextlib
import os
import re
import signal
import sys
import time
import unittest

from support.chrome_trace import ChromeTrace
from support.daemon_fixture import free_port, is_alive, wait_until
from support.full_stack import not_built
from support.policies import CASES, SharingTest

TWO = os.path.join(os.path.dirname(CASES), "two_gpus_case.py")
MISSING = not_built()
MIB = 1 << 20


class TwoGpusTest(SharingTest):
    def start(self, *options, shuffle=0, **words):
        return self.start_daemon(*options, env={"TALLY_SIM_DEVICES": "2", "TALLY_SIM_SHUFFLE": str(shuffle)}, **words)

    def case(self, name, program, *words, priority="best-effort", options=(), env=None):
        file = CASES if program in ("forever", "busy", "requests") else TWO
        return self.start_program("--name", name, *options, priority=priority, env=env,
                                  command=(sys.executable, file, program, *map(str, words)))

    def busy_service(self, device):
        """High-priority work that never ends, on one GPU."""
        service = self.case(f"service-{device}", "busy", 1000, device, priority="high")
        self.await_launches(f"service-{device}", 150)
        return service

    def await_launches(self, name, count=100):
        wait_until(lambda: self.rows().get(name, {}).get("kernel_launches", 0) >= count, f"{name} works", 60)

    def end_all(self, daemon):
        """Before another tallyd starts."""
        daemon.kill()
        daemon.wait()
        for pid in self.noted_executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, self.noted_executors())), "the executors have ended")

    def stop(self, run):
        run.kill()
        run.wait()

    def gpus_of(self, name):
        """On which GPUs it has worked, with the time."""
        return {busy["gpu"]: busy["busy_ns"] for busy in self.rows()[name]["busy"] if busy["busy_ns"] > 0}


class Admission(TwoGpusTest):
    def check_other_gpu(self, policy, *options):
        """Beside a service that never leaves GPU 0 idle a training on GPU 1 alone is not held; one on GPU 0 is."""
        self.start("--policy", policy, *options)
        self.busy_service(0)
        self.case("there", "forever", 20, 1)
        self.case("here", "forever", 20, 0)
        wait_until(lambda: "here" in self.rows(), "it is there")
        self.await_launches("there", 1000)
        there, here = self.launches_within(1, "there", "here")
        self.assertGreater(there, 100)
        self.assertLess(here, 20)
        row = self.rows()["there"]
        self.assertEqual((row["yields"], row["held_launches"]), (0, 0))

    def test_look_ahead(self):
        self.check_other_gpu("look-ahead")

    def test_tally(self):
        self.check_other_gpu("tally")

    def test_tally_with_kernels_that_yield(self):
        self.check_other_gpu("tally", "--transforms", "all")

    def check_both(self, policy):
        """A training on both stands while one of them is taken, and goes on."""
        self.start("--policy", policy)
        service = self.busy_service(0)
        training = self.case("both", "both", 300, 20)
        wait_until(lambda: "both" in self.rows(), "it is there")
        time.sleep(1)
        self.assertEqual(self.launches_within(1, "both"), [0])
        self.assertIsNone(training.poll())
        self.stop(service)
        self.assertEqual(training.communicate(timeout=100)[0], b"OK\n")

    def test_both_with_look_ahead(self):
        self.check_both("look-ahead")

    def test_both_with_tally(self):
        self.check_both("tally")

    def check_collectives(self, policy):
        """Kernels that wait for one another never hang, however services on both GPUs come and go."""
        self.start("--policy", policy)
        for device in (0, 1):
            self.case(f"service-{device}", "requests", 20, 10, device, priority="high")
        for device in (0, 1):
            self.await_launches(f"service-{device}", 5)
        training = self.case("collective", "collective", 20)
        self.assertEqual(training.communicate(timeout=100)[0], b"OK\n")

    def test_collectives_with_look_ahead(self):
        self.check_collectives("look-ahead")

    def test_collectives_with_tally(self):
        self.check_collectives("tally")

    def test_collectives_with_tally_paper(self):
        self.check_collectives("tally-paper")

    def test_collectives_with_kernel_granular(self):
        self.check_collectives("kernel-granular")

    def test_collectives_without_a_policy(self):
        self.check_collectives("none")

    def test_a_service_on_both_closes_both(self):
        self.start("--policy", "look-ahead")
        self.busy_service(0)
        self.busy_service(1)
        for device in (0, 1):
            self.case(f"training-{device}", "forever", 20, device)
        wait_until(lambda: len(self.rows()) == 4, "they are there")
        time.sleep(1)
        self.assertEqual(self.launches_within(1, "training-0", "training-1"), [0, 0])


class Order(TwoGpusTest):
    def test_edges_between_streams_of_two_gpus(self):
        """Some that are missing show as wrong bits: this GPU takes what may start in any order."""
        for shuffle, window in ((1, "off"), (2, "on"), (3, "on")):
            with self.subTest((shuffle, window)):
                daemon = self.start("--policy", "look-ahead", shuffle=shuffle)
                try:
                    self.case("service", "requests", 20, 2, 0, priority="high")
                    self.await_launches("service", 2)
                    training = self.case("exchange", "exchange", 60, env={"TALLY_WINDOW": window})
                    self.assertEqual(training.communicate(timeout=100)[0], b"OK\n")
                finally:
                    self.end_all(daemon)

    def test_graphs_on_the_second(self):
        self.start("--policy", "look-ahead")
        self.busy_service(0)
        run = self.case("graph", "graph", 100, 20, 1)
        self.assertEqual(run.communicate(timeout=100)[0], b"OK\n")
        self.case("held", "graph", 100, 20, 0)
        wait_until(lambda: "held" in self.rows(), "it is there")
        time.sleep(1)
        self.assertLess(self.rows()["held"]["graph_launches"], 5)


class Figures(TwoGpusTest):
    def tracks_of(self, name):
        """On which GPUs a recording shows it."""
        path = os.path.join(self.directory, "trace.json")
        self.assertEqual(self.ctl("trace", "--seconds", "1", "-o", path).returncode, 0)
        with open(path, encoding="ascii") as file:
            trace = ChromeTrace(file.read())
        pid = trace.process(name + " (best-effort")
        named = {text for (process, _), text in trace.threads.items() if process == pid}
        return {int(text.split()[1].rstrip(",")) for text in named if text.startswith("GPU ")}

    def test_busy_time_and_tracks_are_of_the_gpu_that_worked(self):
        port = free_port()
        self.start("--policy", "look-ahead", metrics=f"127.0.0.1:{port}")
        programs = {"first": ("forever", 50, 0), "second": ("forever", 50, 1), "both": ("both", 1_000_000, 50)}
        tracks, gpus = {}, {}
        for name, words in programs.items():
            run = self.case(name, *words)
            self.await_launches(name)
            tracks[name] = self.tracks_of(name)
            gpus[name] = set(self.gpus_of(name))
            self.stop(run)
        self.assertEqual(tracks, {"first": {0}, "second": {1}, "both": {0, 1}})
        (first,), (second,) = gpus["first"], gpus["second"]
        self.assertNotEqual(first, second)
        self.assertEqual(gpus["both"], {first, second})
        page = self.scrape(port)
        exported = collections.defaultdict(set)
        family = r'gpu_busy_seconds_total\{tenant="(\w+)",uid="\d+",gpu="([^"]+)",[^}]*\} (\S+)'
        for tenant, gpu, value in re.findall(family, page):
            if float(value) > 0:
                exported[tenant].add(gpu)
        self.assertEqual(exported, {"first": {first}, "second": {second}, "both": {first, second}})

    def test_an_objective_counts_requests_on_the_second(self):
        self.start("--policy", "look-ahead")
        self.case("service", "requests", 20, 0, 1, priority="high", options=("--slo", "p99=1us"))
        wait_until(lambda: self.rows().get("service", {}).get("slo_requests", 0) > 50, "they are counted", 60)
        self.case("training", "forever", 20, 0)
        self.await_launches("training", 1000)
        self.assertEqual(self.rows()["training"]["held_launches"], 0)


class Quotas(TwoGpusTest):
    def test_memory_is_counted_by_gpu(self):
        self.start()
        run = self.case("a", "fill", 4 * MIB, options=("--memory", "34M"))
        self.assertEqual(run.communicate(timeout=60)[0], b"8 8\n")

    def test_a_cap_on_time_is_of_each_gpu(self):
        """Two programs of a tenant; as one, both together would have what each has."""
        self.start()
        for device in (0, 1):
            self.case("tenant", "forever", 20, device, options=("--share", "20%"))

        def busy():
            times = collections.Counter()
            for row in self.ctl_json("ps"):
                times.update({busy["gpu"]: busy["busy_ns"] for busy in row["busy"]})
            return times

        wait_until(lambda: sum(time_ns > 10**8 for time_ns in busy().values()) == 2, "both work", 60)
        for _ in range(4):
            before, began = busy(), time.monotonic()
            time.sleep(3)
            after, took = busy(), time.monotonic() - began
            shares = [(after[gpu] - before[gpu]) / took / 1e9 for gpu in after]
            if all(0.14 < share < 0.26 for share in shares):
                return
        self.fail(shares)


if __name__ == "__main__":
    if MISSING:
        print("SKIPPED ALL: not built: " + ", ".join(MISSING))
    else:
        unittest.main()
