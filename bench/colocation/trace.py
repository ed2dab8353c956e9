"""Arrival times of requests: open loop, bursty, the same for the same seed.

What is imitated is what Azure Functions' invocation trace of 2021 is known for: the rate of a function changes by
factors within a second and stays changed for a while, and within a moment requests come in clumps.

* The rate is constant for `bin_s`; the logarithm of its factor is a first-order autoregression (`correlation` from one
  bin to the next) with standard deviation `sigma`.
* No bin offers more than `highest_load` of what the service can do alone, as a service is provided for its peaks: what is
  above is spread over the others. Traces of a higher load have an even rate.
* Gaps are Gamma-distributed with shape `gap_shape` (coefficient of variation 1.41 for 0.5; 1 is Poisson) on a
  clock that runs with the rate.
* The number of requests is exactly rate x seconds, so that traces of one load differ in their order only.

`poisson` has an even rate and independent gaps, for comparison. The parameters of `bursty` are
ours; they were not fitted to the Azure data, which this project does not carry.
"""
import dataclasses
import math
import random


@dataclasses.dataclass(frozen=True)
class Burstiness:
    bin_s: float = 0.1
    correlation: float = 0.85
    sigma: float = 0.9
    highest_load: float = 0.8
    gap_shape: float = 0.5


# By name, for --trace.
KINDS = {"bursty": Burstiness(), "poisson": Burstiness(sigma=0.0, gap_shape=1.0)}


def rate_factors(seconds, load, seed, burstiness=KINDS["bursty"]):
    """The factor of the mean rate in each bin; their mean is 1."""
    source = random.Random(f"rate {seed}")
    count = max(1, math.ceil(seconds / burstiness.bin_s))
    level = source.gauss(0, 1)
    factors = []
    for _ in range(count):
        factors.append(math.exp(burstiness.sigma * level))
        level = burstiness.correlation * level + math.sqrt(1 - burstiness.correlation**2) * source.gauss(0, 1)
    highest = max(1.0, burstiness.highest_load / load)
    # The scale with which the bounded factors have the mean 1.
    least, most = 0.0, 1e9
    for _ in range(80):
        scale = (least + most) / 2
        if sum(min(highest, scale * factor) for factor in factors) < count:
            least = scale
        else:
            most = scale
    return [min(highest, most * factor) for factor in factors]


def arrivals(seconds, load, capacity, seed, burstiness=KINDS["bursty"]):
    """Seconds from the beginning, ascending, all below `seconds`. `capacity`: requests per second of the service alone."""
    count = max(1, round(load * capacity * seconds))
    source = random.Random(f"gaps {seed}")
    gaps = [source.gammavariate(burstiness.gap_shape, 1) for _ in range(count + 1)]
    whole = sum(gaps)
    factors = rate_factors(seconds, load, seed, burstiness)
    bin_s = seconds / len(factors)
    times = []
    index, before, done = 0, 0.0, 0.0  # bin; sum of factors before it; sum of gaps
    for gap in gaps[:-1]:
        done += gap
        wanted = done / whole * len(factors)
        while index < len(factors) - 1 and before + factors[index] < wanted:
            before += factors[index]
            index += 1
        share = (wanted - before) / factors[index] if factors[index] > 0 else 1.0
        times.append(min((index + max(0.0, min(1.0, share))) * bin_s, math.nextafter(seconds, 0)))
    return times
