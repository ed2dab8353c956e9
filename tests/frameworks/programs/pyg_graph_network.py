# needs: packages=torch,torch_geometric
# tolerance: 1e-3
"""Graph networks of PyTorch Geometric: GCN and attention layers, a few training steps."""
import torch
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
nodes = torch.randn(500, 16, device="cuda")
edges = torch.randint(0, 500, (2, 3000), device="cuda")
batch = torch.arange(500, device="cuda") // 50
first, second, last = GCNConv(16, 32).cuda(), GATConv(32, 16, heads=2).cuda(), torch.nn.Linear(32, 4).cuda()
parameters = [*first.parameters(), *second.parameters(), *last.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.01)
for step in range(4):
    hidden = second(first(nodes, edges).relu(), edges).relu()
    loss = torch.nn.functional.cross_entropy(last(global_mean_pool(hidden, batch)), torch.arange(10, device="cuda") % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.add(f"loss {step}", loss)
digest.add("weights", *parameters)
digest.print()
