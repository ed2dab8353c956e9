# needs: packages=torch gpus=2
# domain: apart
# tolerance: 1e-3
"""Fully sharded data parallel training over two processes with a GPU each."""
import os
import tempfile

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch.distributed.fsdp import fully_shard

from shared.digest import Digest


def work(rank, folder):
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.manual_seed(5)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(4))).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for _ in range(5):
        loss = model(torch.randn(32, 128, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save([parameter.full_tensor().detach().cpu() for parameter in model.parameters()], os.path.join(folder, f"{rank}.pt"))
    distributed.destroy_process_group()


def main():
    digest = Digest()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, args=(folder,), nprocs=2)
        for rank in range(2):
            digest.add(f"rank {rank}", *torch.load(os.path.join(folder, f"{rank}.pt")))
    digest.print()


if __name__ == "__main__":
    main()
