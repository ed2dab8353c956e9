#!/usr/bin/env python3
"""Nets in PyTorch: Triton kernels one by one and captured, branches by torch.compile and in eager mode; and two that
have nothing to gain: products that fill the GPU, and a net so small that Python is the limit."""
import functools

import torch
import triton
import triton.language as tl

import episode

CHAINS, LINKS, ROWS, COLUMNS = 4, 8, 32, 4096
WIDTH, CELLS = 64, 8


@triton.jit
def normalize(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(source + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    tl.store(target + row * columns + offsets, centred / tl.sqrt(variance + 1e-5), mask=mask)


@triton.jit
def dense(source, weights, target, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, WIDTH)
    mask = row[:, None] < rows
    x = tl.load(source + row[:, None] * WIDTH + column[None, :], mask=mask, other=0.0)
    w = tl.load(weights + column[:, None] * WIDTH + column[None, :])
    y = tl.dot(x, w, input_precision="ieee")
    tl.store(target + row[:, None] * WIDTH + column[None, :], tl.maximum(y, 0.0), mask=mask)


@triton.jit(do_not_specialize=["chosen"])
def combine(source, cells, target, size, chosen, CELLS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    count = 0
    for cell in tl.static_range(CELLS):
        is_chosen = (chosen >> cell) & 1
        total += tl.load(cells + cell * size + i, mask=(i < size) & (is_chosen != 0), other=0.0)
        count += is_chosen
    x = tl.load(source + i, mask=i < size)
    tl.store(target + i, 0.5 * x + 0.5 * total / count, mask=i < size)


def random(*shape, seed=1, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to("cuda", dtype)


def captured(function):
    """A graph of what the function launches, into one stream."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


class Torch(episode.Case):
    def wait(self):
        torch.cuda.synchronize()

    def outputs(self):
        raise NotImplementedError

    def result(self):
        return self.outputs().detach().contiguous().cpu().view(torch.uint8).numpy().tobytes()


class Chains(Torch):
    """Four rows of kernels that have nothing to do with one another, launched in turn."""

    def __init__(self):
        self.x = random(CHAINS, ROWS, COLUMNS)
        self.data = [[self.x[chain].clone(), torch.empty_like(self.x[chain])] for chain in range(CHAINS)]

    def reset(self):
        for chain in range(CHAINS):
            self.data[chain][0].copy_(self.x[chain])

    def launches(self):
        for link in range(LINKS):
            for pair in self.data:
                normalize[(ROWS,)](pair[link % 2], pair[1 - link % 2], COLUMNS, BLOCK=4096)

    def step(self, number):
        self.launches()

    def outputs(self):
        return torch.stack([pair[0] for pair in self.data])


class ChainsCaptured(Chains):
    def __init__(self):
        super().__init__()
        self.graph = captured(self.launches)

    def step(self, number):
        self.graph.replay()


class Gated(Torch):
    """As in by_nvrtc.py: the input says which cells of each layer run."""
    rows, layers, steps = 256, 8, 16
    is_captured = False

    def __init__(self):
        weights = random(self.layers, CELLS, 2, WIDTH, WIDTH) * (2 / WIDTH) ** 0.5
        self.weights = [[list(cell.unbind()) for cell in layer.unbind()] for layer in weights.unbind()]
        self.inputs = random(self.steps, self.rows, WIDTH, seed=2)
        self.gates = random(self.layers * CELLS, WIDTH, seed=3)
        self.x, self.y = (torch.empty(self.rows, WIDTH, device="cuda") for _ in range(2))
        self.hidden, self.cells = (torch.empty(CELLS, self.rows, WIDTH, device="cuda") for _ in range(2))
        self.each_hidden, self.each_cell = self.hidden.unbind(), self.cells.unbind()
        self.results = torch.empty_like(self.inputs)
        self.graphs = {}

    def launches(self, masks):
        source, target = self.x, self.y
        for layer, mask in enumerate(masks):
            for cell in range(CELLS):
                if mask >> cell & 1:
                    first, second = self.weights[layer][cell]
                    dense[(self.rows // 16,)](source, first, self.each_hidden[cell], self.rows, WIDTH, 16)
                    dense[(self.rows // 16,)](self.each_hidden[cell], second, self.each_cell[cell], self.rows, WIDTH, 16)
            combine[(self.rows * WIDTH // 256,)](source, self.cells, target, self.rows * WIDTH, mask, CELLS, 256)
            source, target = target, source

    def step(self, number):
        chosen = ((self.gates * self.inputs[number % self.steps][0]).sum(1) > 0).tolist()
        masks = tuple(sum(1 << cell for cell in range(CELLS) if chosen[layer * CELLS + cell]) or 1 for layer in range(self.layers))
        self.x.copy_(self.inputs[number % self.steps])
        if not self.is_captured:
            self.launches(masks)
        else:
            if masks not in self.graphs:
                self.graphs[masks] = captured(functools.partial(self.launches, masks))
                self.x.copy_(self.inputs[number % self.steps])
            self.graphs[masks].replay()
        self.results[number % self.steps].copy_(self.x)

    def outputs(self):
        return self.results


class GatedCaptured(Gated):
    is_captured = True


def branches(inputs):
    """Eight branches that end in reductions, which no compiler makes one kernel of."""
    outputs = []
    for x in inputs:
        for _ in range(3):
            x = torch.softmax(torch.tanh(x) * 3, dim=1) + x
            x = torch.nn.functional.layer_norm(x.t().contiguous(), x.shape[:1]).t().contiguous()
        outputs.append(x)
    return torch.stack(outputs)


class Compiled(Torch):
    options = {}

    def __init__(self):
        self.inputs = [random(192 + 32 * number, 256, seed=number)[:192].contiguous() for number in range(8)]
        self.function = torch.compile(branches, **self.options)
        self.out = self.function(self.inputs)

    def step(self, number):
        self.out = self.function(self.inputs)

    def outputs(self):
        return self.out


class CompiledCaptured(Compiled):
    """What mode="reduce-overhead" does, without its copies of inputs and outputs."""

    def __init__(self):
        super().__init__()
        self.graph = captured(lambda: Compiled.step(self, 0))

    def step(self, number):
        self.graph.replay()


class EagerBranches(Torch):
    """Eight branches of small products and the like: code of libraries."""

    def __init__(self):
        self.inputs = [random(128, 256, seed=number) for number in range(8)]
        self.weights = [[random(256, 256, seed=10 * number + layer) / 16 for layer in range(3)] for number in range(8)]
        self.out = None

    def step(self, number):
        outputs = []
        for x, weights in zip(self.inputs, self.weights):
            for weight in weights:
                x = torch.relu(x @ weight)
            outputs.append(x)
        self.out = torch.cat(outputs)

    def outputs(self):
        return self.out


class EagerBranchesCaptured(EagerBranches):
    def __init__(self):
        super().__init__()
        self.graph = captured(lambda: EagerBranches.step(self, 0))

    def step(self, number):
        self.graph.replay()


class Products(Torch):
    """Each fills the GPU."""
    steps = 10

    def __init__(self):
        self.x, self.weight = random(4096, 4096, dtype=torch.bfloat16), random(4096, 4096, seed=2, dtype=torch.bfloat16) / 64
        self.y = self.x

    def reset(self):
        self.y = self.x

    def step(self, number):
        self.y = self.y @ self.weight

    def outputs(self):
        return self.y


class HostBound(Torch):
    steps = 5

    def __init__(self):
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True)
        self.net = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to("cuda").eval()
        self.x = random(2, 16, 64)
        self.y = None

    def step(self, number):
        with torch.no_grad():
            self.y = self.net(self.x)

    def outputs(self):
        return self.y


if __name__ == "__main__":
    episode.main({"products that fill the GPU": Products, "host-bound eager net": HostBound, "eager branches": EagerBranches,
                  "Triton chains": Chains, "Triton gated cells": Gated, "compiled branches": Compiled,
                  "eager branches, captured": EagerBranchesCaptured, "Triton chains, captured": ChainsCaptured,
                  "Triton gated cells, captured": GatedCaptured, "compiled branches, captured": CompiledCaptured})
