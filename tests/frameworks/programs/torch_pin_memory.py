# needs: packages=torch
"""Pinned memory: copies in both directions, asynchronous copies on a stream, pinned results, non-contiguous copies."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
pinned = torch.randn(1 << 22).pin_memory()
assert pinned.is_pinned()
there = pinned.cuda(non_blocking=True)
back = torch.empty(1 << 22, pin_memory=True)
back.copy_(there, non_blocking=True)
torch.cuda.synchronize()
digest.add("round trip", back, bool((back == pinned).all()))
stream = torch.cuda.Stream()
chunks = torch.empty(8, 1 << 18, pin_memory=True)
with torch.cuda.stream(stream):
    for index in range(8):
        piece = pinned[index << 18 : (index + 1) << 18].cuda(non_blocking=True) * index
        chunks[index].copy_(piece, non_blocking=True)
stream.synchronize()
digest.add("chunks", chunks)
matrix = torch.randn(512, 512).pin_memory()
digest.add("strided", matrix[:, ::2].cuda(non_blocking=True), matrix.t().cuda())
digest.add("pageable", torch.arange(1 << 22, dtype=torch.float32).cuda().add_(1), torch.randn(3_333_333).cuda().sum())
mapped = torch.zeros(1000, pin_memory=True)
torch.arange(1000, device="cuda", dtype=torch.float32).sum()
mapped.copy_(torch.arange(1000, device="cuda"))
digest.add("converted on the way", mapped)
digest.print()
