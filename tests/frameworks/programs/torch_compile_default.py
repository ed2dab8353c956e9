# needs: packages=torch,triton
# tolerance: 1e-3
"""torch.compile in its default mode: a fused function, dynamic shapes, a model with its backward pass."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch


@torch.compile
def gelu_sum(x, y):
    return torch.nn.functional.gelu(x * 2 + y).sum(dim=-1), (x - y).softmax(dim=-1)


def main():
    seed_torch()
    digest = Digest()
    for rows in (64, 100):
        digest.add(f"function, {rows} rows", *gelu_sum(torch.randn(rows, 512, device="cuda"), torch.randn(rows, 512, device="cuda")))
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.LayerNorm(512), torch.nn.GELU(), torch.nn.Linear(512, 10)).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 256, device="cuda")
    target = torch.randint(0, 10, (64,), device="cuda")
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(compiled(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    digest.add("training", loss, *model.parameters())
    digest.print()


if __name__ == "__main__":
    main()
