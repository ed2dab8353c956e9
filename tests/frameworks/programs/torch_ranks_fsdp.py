# needs: packages=torch gpus=2
# tolerance: 1e-3
"""Fully sharded training by torchrun, a rank on every GPU: FSDP of a small transformer."""
import torch
from torch.distributed.fsdp import fully_shard

from shared.seeding import seed_torch
from shared.torchrun import under_torchrun

STEPS = 10


def work(rank, _):
    torch.manual_seed(5)
    layers = [torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True) for _ in range(4)]
    model = torch.nn.Sequential(*layers).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for _ in range(STEPS):
        loss = model(torch.randn(8, 32, 128, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"loss": loss, "weights": torch.cat([parameter.full_tensor().reshape(-1) for parameter in model.parameters()])}


if __name__ == "__main__":
    seed_torch()
    under_torchrun(work)
