#!/usr/bin/env python3
"""Six chains of small kernels by Numba, launched in turn, and a kernel that needs them all."""
import numpy

for removed, name in {"row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid"}.items():
    if not hasattr(numpy, removed):  # gone from numpy 2.5, which numba 0.6x still names when it compiles
        setattr(numpy, removed, getattr(numpy, name))
# pylint: disable=wrong-import-position
from numba import cuda, float32

import episode
# pylint: enable=wrong-import-position

CHAINS, SIZE = 6, 32_768


def smooth(source, target, rate):
    i = cuda.grid(1)
    if i < target.size:
        total = float32(0)
        for k in range(16):
            total += source[min(i + k, target.size - 1)]
        target[i] = source[i] + rate * (total / float32(16) - source[i])


def mix(a, b, c, target):
    i = cuda.grid(1)
    if i < target.size:
        target[i] += float32(0.01) * (a[i] + b[i] * c[i])


class Chains(episode.Case):
    options = {}

    def __init__(self):
        source = numpy.random.default_rng(1)
        self.first = [source.standard_normal(SIZE).astype(numpy.float32) for _ in range(CHAINS)]
        self.now = [cuda.to_device(field) for field in self.first]
        self.then = [cuda.device_array(SIZE, numpy.float32) for _ in range(CHAINS)]
        self.smooth, self.mix = (cuda.jit(kernel, **self.options)[SIZE // 128, 128] for kernel in (smooth, mix))

    def reset(self):
        for now, first in zip(self.now, self.first):
            now.copy_to_device(first)

    def step(self, number):
        for now, then in zip(self.now, self.then):
            self.smooth(now, then, float32(0.1))
            self.smooth(then, now, float32(0.2))
        self.mix(self.now[0], self.now[1], self.now[2], self.now[3])

    def wait(self):
        cuda.synchronize()

    def result(self):
        return b"".join(field.copy_to_host().tobytes() for field in self.now)


class WithoutLto(Chains):
    """Compiled to PTX, where Numba otherwise has the linker make machine code of what is none yet."""
    options = {"lto": False}


if __name__ == "__main__":
    episode.main({"chains": Chains, "chains, lto=False": WithoutLto})
