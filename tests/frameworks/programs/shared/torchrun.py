"""A program that torchrun starts, once a GPU: `under_torchrun(work)` in the program's main.

The file starts itself again by torchrun. `work(rank, size)` runs in every rank and returns named tensors; rank 0 prints the
digest of all ranks' in order. Their GPU is current, and the default process group is NCCL's.
"""
import os
import sys

MOST = 8


def under_torchrun(work):
    import torch

    if "TORCHELASTIC_RUN_ID" not in os.environ:
        size = min(MOST, torch.cuda.device_count())
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), *sys.argv])
    import torch.distributed as distributed

    from shared.digest import Digest

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl")
    parts = {name: part.detach().cpu() for name, part in work(rank, size).items()}
    everybodys = [None] * size
    distributed.all_gather_object(everybodys, parts)
    if rank == 0:
        digest = Digest()
        for each, named in enumerate(everybodys):
            for name, part in named.items():
                digest.add(f"rank {each}: {name}", part)
        digest.print()
    distributed.barrier()
    distributed.destroy_process_group()
