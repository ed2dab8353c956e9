"""Traces of bench/colocation: all modes are compared on them."""
import statistics
import unittest

import trace

SECONDS, CAPACITY = 60, 500


class TraceTest(unittest.TestCase):
    def test_the_same_seed_gives_the_same_trace_and_another_does_not(self):
        first = trace.arrivals(SECONDS, 0.5, CAPACITY, "a")
        self.assertEqual(first, trace.arrivals(SECONDS, 0.5, CAPACITY, "a"))
        self.assertNotEqual(first, trace.arrivals(SECONDS, 0.5, CAPACITY, "b"))

    def test_the_load_is_exact(self):
        for load in (0.1, 0.5, 0.9):
            for seed in range(5):
                times = trace.arrivals(SECONDS, load, CAPACITY, seed)
                self.assertEqual(len(times), round(load * CAPACITY * SECONDS))
                self.assertEqual(times, sorted(times))
                self.assertGreaterEqual(times[0], 0)
                self.assertLess(times[-1], SECONDS)

    def test_a_short_trace_has_a_request(self):
        self.assertEqual(len(trace.arrivals(0.1, 0.1, 1, 0)), 1)

    def test_it_is_burstier_than_poisson(self):
        """Variance over mean of the number per 100 ms: 1 for Poisson, about 2 for the gaps' clumps alone."""
        for load in (0.1, 0.5):
            counts = [0] * (SECONDS * 10)
            for time in trace.arrivals(SECONDS, load, CAPACITY, "burst"):
                counts[int(time * 10)] += 1
            self.assertGreater(statistics.variance(counts) / statistics.mean(counts), 3)

    def test_the_rate_changes_and_no_bin_is_above_what_the_service_can_do(self):
        for load in (0.1, 0.3, 0.5, 0.7, 0.9):
            factors = trace.rate_factors(SECONDS, load, "r")
            self.assertAlmostEqual(statistics.mean(factors), 1, places=6)
            self.assertLessEqual(max(factors) * load, max(load, 0.8) + 1e-9)
            self.assertEqual(min(factors) < 0.9, load < 0.8)

    def test_a_load_above_the_bound_is_even(self):
        self.assertEqual({round(factor, 6) for factor in trace.rate_factors(5, 0.97, "r")}, {1.0})

    def test_poisson_is_poisson(self):
        """Of a trace of many arrivals: variance over mean of the number per 100 ms is near 1, and the rate is even."""
        times = trace.arrivals(SECONDS, 0.5, CAPACITY, "p", trace.KINDS["poisson"])
        counts = [0] * (SECONDS * 10)
        for time in times:
            counts[int(time * 10)] += 1
        self.assertAlmostEqual(statistics.variance(counts) / statistics.mean(counts), 1, delta=0.25)
        self.assertEqual({round(factor, 6) for factor in trace.rate_factors(5, 0.5, "p", trace.KINDS["poisson"])}, {1.0})

    def test_the_rate_stays_for_a_while(self):
        factors = trace.rate_factors(600, 0.1, "r")
        mean = statistics.mean(factors)
        following = sum((a - mean) * (b - mean) for a, b in zip(factors, factors[1:])) / sum((a - mean) ** 2 for a in factors)
        self.assertGreater(following, 0.5)


if __name__ == "__main__":
    unittest.main()
