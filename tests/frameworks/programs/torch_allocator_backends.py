# needs: packages=torch
"""PyTorch on cudaMallocAsync instead of its own allocator."""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"

import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
digest.add("backend", torch.cuda.get_allocator_backend())
x = torch.randn(1000, 1000, device="cuda")
for _ in range(20):
    x = (x @ x).tanh()
digest.add("products", x)
parts = [torch.full((1 << 20,), float(index), device="cuda") for index in range(32)]
del parts[::2]
torch.cuda.empty_cache()
digest.add("kept", torch.stack(parts).sum(dim=1))
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    y = torch.randn(1 << 20, device="cuda").exp()
torch.cuda.current_stream().wait_stream(stream)
digest.add("other stream", y.sum())
digest.print()
