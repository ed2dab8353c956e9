# needs: packages=torch
"""CUDA graphs: a captured training step, graphed callables, random numbers in a graph, shared pools, several streams."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
x, target = torch.randn(64, 128, device="cuda"), torch.randint(0, 10, (64,), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x), target)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(10):
    x.copy_(torch.randn(64, 128, device="cuda"))
    graph.replay()
digest.add("training step", loss, *model.parameters())

graphed = torch.cuda.make_graphed_callables(torch.nn.Linear(128, 32).cuda(), (torch.randn(16, 128, device="cuda", requires_grad=True),))
fresh = torch.randn(16, 128, device="cuda", requires_grad=True)
output = graphed(fresh)
output.square().sum().backward()
digest.add("graphed callable", output, fresh.grad)

second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=graph.pool()):
    noise = torch.rand(1000, device="cuda")
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        branch = noise * 2
    torch.cuda.current_stream().wait_stream(other)
    joined = branch + noise
for round in range(2):
    second.replay()
    digest.add(f"random numbers, replay {round}", joined)
graph.reset()
digest.print()
