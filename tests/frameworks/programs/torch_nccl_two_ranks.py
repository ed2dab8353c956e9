# needs: packages=torch gpus=2
# domain: apart
"""NCCL between two processes with a GPU each: collectives, point to point, DistributedDataParallel."""
import os
import tempfile

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from shared.digest import Digest


def work(rank, folder):
    torch.cuda.set_device(rank)
    torch.manual_seed(rank)
    distributed.init_process_group("nccl", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    parts = {}
    x = torch.randn(1 << 20, device="cuda")
    distributed.all_reduce(x)
    parts["all-reduce"] = x
    pieces = [torch.empty(1000, device="cuda") for _ in range(2)]
    distributed.all_gather(pieces, torch.randn(1000, device="cuda"))
    parts["all-gather"] = torch.stack(pieces)
    distributed.broadcast(x, src=1)
    scattered = torch.empty(500, device="cuda")
    distributed.reduce_scatter_tensor(scattered, x[:1000].contiguous())
    parts["reduce-scatter"] = scattered
    exchanged = torch.empty(1000, device="cuda")
    distributed.all_to_all_single(exchanged, torch.randn(1000, device="cuda"))
    parts["all-to-all"] = exchanged
    if rank == 0:
        distributed.send(x[:100], dst=1)
    else:
        received = torch.empty(100, device="cuda")
        distributed.recv(received, src=0)
        parts["received"] = received
    torch.manual_seed(5)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(32, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    parts["weights"] = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    distributed.barrier()
    torch.save({name: part.cpu() for name, part in parts.items()}, os.path.join(folder, f"{rank}.pt"))
    distributed.destroy_process_group()


def main():
    digest = Digest()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, args=(folder,), nprocs=2)
        for rank in range(2):
            for name, part in torch.load(os.path.join(folder, f"{rank}.pt")).items():
                digest.add(f"rank {rank}: {name}", part)
    digest.print()


if __name__ == "__main__":
    main()
