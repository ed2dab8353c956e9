# needs: packages=torch
"""The caching allocator on virtual memory management: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"

import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
kept = []
for size in range(1, 40):
    tensor = torch.full((size * 100_000,), float(size), device="cuda")
    if size % 3:
        kept.append(tensor)
digest.add("allocations", *(tensor.sum() for tensor in kept))
del kept[::2]
large = torch.randn(30_000_000, device="cuda")
digest.add("after frees", large.sum(), *(tensor.mean() for tensor in kept))
del large
torch.cuda.empty_cache()
again = torch.ones(50_000_000, device="cuda").cumsum(0)
digest.add("after empty_cache", again[-1], torch.cuda.memory_allocated())
kinds = {segment["is_expandable"] for segment in torch.cuda.memory_snapshot()}
digest.add("segments are expandable", sorted(kinds))
digest.print()
