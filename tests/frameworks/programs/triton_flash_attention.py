# needs: packages=torch,triton
"""Triton: attention with online softmax, causal, in one kernel."""
import torch
import triton
import triton.language as tl

from shared.digest import Digest
from shared.seeding import seed_torch


@triton.jit
def attention(query, key, value, output, length, scale, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    block = tl.program_id(0)
    head = tl.program_id(1) * length * WIDTH
    rows = block * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, WIDTH)
    q = tl.load(query + head + rows[:, None] * WIDTH + lanes[None, :])
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    accumulated = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, (block + 1) * BLOCK, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k = tl.load(key + head + columns[:, None] * WIDTH + lanes[None, :])
        v = tl.load(value + head + columns[:, None] * WIDTH + lanes[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_highest[:, None])
        shrink = tl.exp(highest - new_highest)
        total = total * shrink + tl.sum(weights, axis=1)
        accumulated = accumulated * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = new_highest
    tl.store(output + head + rows[:, None] * WIDTH + lanes[None, :], accumulated / total[:, None])


seed_torch()
digest = Digest()
q, k, v = (torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.half) for _ in range(3))
result = torch.empty(2, 4, 256, 64, device="cuda")
attention[(256 // 64, 8)](q, k, v, result, 256, 64**-0.5, BLOCK=64, WIDTH=64)
expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
error = (result - expected).abs().max().item()
assert error < 2e-2, error
digest.add("causal attention", result)
digest.print()
