# needs: packages=torch gpus=2
# tolerance: 1e-3
"""Data-parallel training by torchrun, a rank on every GPU: NCCL's all-reduce, DistributedDataParallel of a small network."""
import torch
import torch.distributed as distributed

from shared.seeding import seed_torch
from shared.torchrun import under_torchrun

STEPS = 20


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)).cuda()


def work(rank, _):
    torch.manual_seed(rank)
    parts = {}
    for power in (3, 10, 20, 24):  # NCCL's protocols, by size
        x = torch.randn(1 << power, device="cuda")
        distributed.all_reduce(x)
        parts[f"all-reduce of 2^{power}"] = x
    model = torch.nn.parallel.DistributedDataParallel(network(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        images, labels = torch.randn(16, 3, 32, 32, device="cuda"), torch.randint(10, (16,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    parts["loss"] = loss
    parts["weights"] = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    return parts


if __name__ == "__main__":
    seed_torch()
    under_torchrun(work)
