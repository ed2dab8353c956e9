# needs: packages=torch
"""NCCL with one rank on one GPU: what DistributedDataParallel does on a small machine."""
import os
import tempfile

import torch
import torch.distributed as distributed

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
with tempfile.TemporaryDirectory() as folder:
    distributed.init_process_group("nccl", init_method=f"file://{os.path.join(folder, 'rendezvous')}", rank=0, world_size=1)
    x = torch.randn(1000, device="cuda")
    distributed.all_reduce(x)
    gathered = [torch.empty_like(x)]
    distributed.all_gather(gathered, x)
    digest.add("all-reduce", x, *gathered)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(32, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    digest.add("weights", *model.parameters())
    distributed.destroy_process_group()
digest.print()
