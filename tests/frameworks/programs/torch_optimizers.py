# needs: packages=torch
# tolerance: 1e-4
"""Every optimizer in its plain, foreach and fused forms on one small problem."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.randn(128, 64, device="cuda")
target = torch.randn(128, 8, device="cuda")


def train(kind, **options):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8)).cuda()
    optimizer = kind(model.parameters(), lr=0.01, **options)
    for _ in range(10):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
    digest.add(f"{kind.__name__} {options}", *model.parameters())


for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        train(kind, **options)
for kind in (torch.optim.Adagrad, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Rprop,
             torch.optim.ASGD, torch.optim.Adadelta):
    train(kind)
digest.print()
