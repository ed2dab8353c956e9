# needs: packages=torch gpus=2
"""Two GPUs in one process: peer copies, work on both, DataParallel (NCCL inside one process), streams of both."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.randn(1 << 20, device="cuda:0")
y = x.to("cuda:1", non_blocking=True)
digest.add("peer copy", y, y.to("cuda:0") == x)
digest.add("peer access", torch.cuda.can_device_access_peer(0, 1))
with torch.cuda.device(1):
    z = torch.randn(512, 512, device="cuda") @ torch.randn(512, 512, device="cuda")
digest.add("work on the second", z, z.get_device(), torch.cuda.current_device())
event = torch.cuda.Event()
with torch.cuda.stream(torch.cuda.Stream(device=1)):
    w = y.cos()
    event.record()
torch.cuda.current_stream(0).wait_event(event)
digest.add("waits across devices", w.to("cuda:0") + x)
strided = torch.randn(300, 300, device="cuda:0")[:, ::3]
digest.add("strided peer copy", torch.zeros(300, 100, device="cuda:1").copy_(strided))
model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(64, 64, device="cuda")).square().mean().backward()
    optimizer.step()
digest.add("data parallel", *model.parameters())
digest.print()
