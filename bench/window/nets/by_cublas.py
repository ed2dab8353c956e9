#!/usr/bin/env python3
"""Small products of cuBLAS, eight that need nothing of one another in turn: what would it bring to know what they touch?

CUBLAS_WORKSPACE_CONFIG=:0:0 of the one who runs it has PyTorch give cuBLAS no workspace, which all products of a handle
would share. Then a product touches its matrices only, and may be declared (include/tally/segments.h).
"""
import ctypes

import torch

import episode
from by_torch import Torch, captured, random

ROWS, WIDTH, BRANCHES, LAYERS = 128, 256, 8, 4


class Segment(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("row_bytes", ctypes.c_size_t), ("rows", ctypes.c_size_t), ("pitch", ctypes.c_size_t)]


def segments(*tensors):
    return (Segment * len(tensors))(*[Segment(tensor.data_ptr(), tensor.nbytes, 1, 0) for tensor in tensors])


class Products(Torch):
    dtype = torch.float32

    def __init__(self):
        self.given = random(BRANCHES, ROWS, WIDTH, dtype=self.dtype)
        self.data = [self.given.clone().unbind(), torch.empty_like(self.given).unbind()]
        weights = (random(BRANCHES, WIDTH, WIDTH, seed=2) * WIDTH ** -0.5).to(self.dtype)
        self.plan = [(self.data[layer % 2][branch], weights[branch].clone(), self.data[1 - layer % 2][branch])
                     for layer in range(LAYERS) for branch in range(BRANCHES)]

    def reset(self):
        for to, given in zip(self.data[0], self.given):
            to.copy_(given)

    def step(self, number):
        for x, weight, y in self.plan:
            torch.mm(x, weight, out=y)

    def outputs(self):
        return torch.stack(self.data[0])


class Declared(Products):
    def __init__(self):
        super().__init__()
        self.declare = getattr(ctypes.CDLL("libcuda.so.1"), "tally_declare_segments", None)
        if self.declare:
            self.declare.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
        self.touched = [(segments(x, weight), segments(y)) for x, weight, y in self.plan]

    def step(self, number):
        if not self.declare:
            super().step(number)
            return
        for (x, weight, y), (read, written) in zip(self.plan, self.touched):
            self.declare(read, 2, written, 1)
            torch.mm(x, weight, out=y)


class Captured(Products):
    def __init__(self):
        super().__init__()
        self.graph = captured(self.launches)

    def launches(self):
        Products.step(self, 0)

    def step(self, number):
        self.graph.replay()


class Streams(Captured):
    """What may run side by side does: the most that there is to gain."""

    def launches(self):
        main = torch.cuda.current_stream()
        streams = [torch.cuda.Stream() for _ in range(BRANCHES)]
        for branch, stream in enumerate(streams):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                for x, weight, y in self.plan[branch::BRANCHES]:
                    torch.mm(x, weight, out=y)
        for stream in streams:
            main.wait_stream(stream)


def half(case):
    return type(case.__name__, (case,), {"dtype": torch.bfloat16})


if __name__ == "__main__":
    episode.main({"float": Products, "float, declared": Declared, "bfloat16": half(Products), "bfloat16, declared": half(Declared),
                  "float, captured": Captured, "bfloat16, captured": half(Captured), "float, captured with streams": Streams,
                  "bfloat16, captured with streams": half(Streams)})
