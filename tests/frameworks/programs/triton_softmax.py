# needs: packages=torch,triton
"""Triton: softmax and layer norm by rows, atomics, random numbers, scans."""
import torch
import triton
import triton.language as tl

from shared.digest import Digest
from shared.seeding import seed_torch


@triton.jit
def softmax(source, target, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(source + row * columns + offsets, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(target + row * columns + offsets, x / tl.sum(x, axis=0), mask=mask)


@triton.jit
def layer_norm(source, target, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(source + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    tl.store(target + row * columns + offsets, centred * tl.rsqrt(variance + epsilon), mask=mask)


@triton.jit
def count_and_scan(source, counts, target, noise, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + offsets)
    tl.atomic_add(counts + x, 1)
    tl.store(target + offsets, tl.cumsum(x, axis=0))
    tl.store(noise + offsets, tl.rand(1234, offsets))


seed_torch()
digest = Digest()
x = torch.randn(500, 781, device="cuda")
y = torch.empty_like(x)
softmax[(500,)](x, y, 781, BLOCK=1024)
assert torch.allclose(y, x.softmax(dim=1), atol=1e-5)
digest.add("softmax", y)
layer_norm[(500,)](x, y, 781, 1e-5, BLOCK=1024, num_warps=8)
digest.add("layer norm", y)
numbers = torch.randint(0, 32, (64 * 512,), device="cuda", dtype=torch.int32)
counts = torch.zeros(32, device="cuda", dtype=torch.int32)
scanned = torch.empty_like(numbers)
noise = torch.empty(64 * 512, device="cuda")
count_and_scan[(64,)](numbers, counts, scanned, noise, BLOCK=512)
digest.add("atomics, scan, random numbers", counts, scanned, noise)
digest.print()
