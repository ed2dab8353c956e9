#!/usr/bin/env python3
"""A simulation by CuPy: six fields that spread, each on its own, and then react with one another."""
import os

# CuPy's cache on disk has machine code without the text that it was made from.
os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
# pylint: disable=wrong-import-position
import cupy

import episode
# pylint: enable=wrong-import-position

FIELDS = 6

spread = cupy.ElementwiseKernel(
    "raw T from, int32 side, T rate", "T to", """
    const int x = i % side, y = i / side;
    const T here = from[i];
    const T around = from[y * side + (x + 1) % side] + from[y * side + (x + side - 1) % side] +
                     from[(y + 1) % side * side + x] + from[(y + side - 1) % side * side + x];
    to = here + rate * (around - 4 * here)""", "spread")
react = cupy.ElementwiseKernel("T a, T b, T c", "T to", "to = a + T(0.01) * (b * c - a * a)", "react")


class Simulation(episode.Case):
    side = 128

    def __init__(self):
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        source = cupy.random.RandomState(1)
        self.first = [source.rand(self.side * self.side, dtype=cupy.float32) for _ in range(FIELDS)]
        self.now = [field.copy() for field in self.first]
        self.then = [cupy.empty_like(field) for field in self.first]

    def reset(self):
        for now, first in zip(self.now, self.first):
            cupy.copyto(now, first)

    def launches(self):
        for number, (now, then) in enumerate(zip(self.now, self.then)):
            spread(now, self.side, cupy.float32(0.02 * (number + 1)), then)
        for number, now in enumerate(self.now):
            react(self.then[number], self.then[(number + 1) % FIELDS], self.then[(number + 2) % FIELDS], now)

    def step(self, number):
        self.launches()

    def wait(self):
        self.stream.synchronize()

    def result(self):
        return b"".join(field.get().tobytes() for field in self.now)


class Captured(Simulation):
    def __init__(self):
        super().__init__()
        self.launches()
        self.stream.synchronize()
        self.stream.begin_capture()
        self.launches()
        self.graph = self.stream.end_capture()

    def step(self, number):
        self.graph.launch(self.stream)


class Large(Simulation):
    """Each kernel fills the GPU."""
    side, steps = 4096, 10


if __name__ == "__main__":
    episode.main({"fields": Simulation, "large fields": Large, "fields, captured": Captured})
