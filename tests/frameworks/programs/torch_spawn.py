# needs: packages=torch
"""Two spawned processes, each with CUDA of its own, results returned in shared host memory."""
import torch
import torch.multiprocessing as multiprocessing

from shared.digest import Digest
from shared.seeding import seed_torch


def work(rank, shared):
    torch.manual_seed(rank)
    x = torch.randn(256, 256, device="cuda")
    shared[rank].copy_((x @ x).cpu())


def main():
    seed_torch()
    digest = Digest()
    shared = torch.zeros(2, 256, 256).share_memory_()
    multiprocessing.spawn(work, args=(shared,), nprocs=2)
    digest.add("products", shared)
    digest.print()


if __name__ == "__main__":
    main()
