# needs: packages=torch,triton
# tolerance: 1e-3
"""torch.compile(mode="reduce-overhead"): Inductor's own CUDA graphs, inference and training."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch


def main():
    seed_torch()
    digest = Digest()
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 10)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(64, 256, device="cuda")
    with torch.inference_mode():
        for step in range(5):
            output = compiled(x * (step + 1)).clone()
    digest.add("inference", output)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = torch.randint(0, 10, (64,), device="cuda")
    for _ in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        loss = torch.nn.functional.cross_entropy(compiled(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    digest.add("training", *model.parameters())
    digest.print()


if __name__ == "__main__":
    main()
