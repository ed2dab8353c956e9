# needs: packages=torch,triton
"""Triton: tiled matrix products with tl.dot in fp16 and tf32, and autotuning over two tilings with equal results."""
import torch
import triton
import triton.language as tl

from shared.digest import Digest
from shared.seeding import seed_torch


@triton.jit
def product(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :], mask=rows[:, None] < m, other=0.0)
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0.0)
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


tuned = triton.autotune(configs=[triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4),
                                 triton.Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_warps=2)], key=["m", "n", "k"])(product)

seed_torch()
digest = Digest()
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    a = torch.randn(300, 256, device="cuda", dtype=dtype)
    b = torch.randn(256, 200, device="cuda", dtype=dtype)
    c = torch.empty(300, 200, device="cuda")
    product[(triton.cdiv(300, 64), triton.cdiv(200, 64))](a, b, c, 300, 200, 256, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    digest.add(str(dtype), c)
    error = (c - (a.double() @ b.double())).abs().max().item()
    assert error < 0.2, error
a, b = a.half(), b.half()
c = torch.empty(300, 200, device="cuda")
tuned[lambda options: (triton.cdiv(300, options["BLOCK_M"]), triton.cdiv(200, options["BLOCK_N"]))](a, b, c, 300, 200, 256, BLOCK_K=32)
digest.add("autotuned, rounded", (c * 4).round())
digest.print()
