# needs: packages=torch
"""torch.profiler with CUDA activity, NVTX ranges, the profiler's start and stop: the program must run on, whatever they see."""
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.randn(512, 512, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    with record_function("products"):
        for _ in range(5):
            x = (x @ x).tanh()
    torch.cuda.synchronize()
digest.add("under the profiler", x)
digest.add("host side seen", any(row.key == "aten::mm" for row in profiler.key_averages()))
print("device side seen:", any(row.device_time_total > 0 for row in profiler.key_averages()))
with profile(activities=[ProfilerActivity.CUDA], schedule=torch.profiler.schedule(wait=1, warmup=1, active=2)) as profiler:
    for _ in range(5):
        x = (x @ x).tanh()
        profiler.step()
digest.add("with a schedule", x)
torch.cuda.nvtx.range_push("outer")
with torch.cuda.nvtx.range("inner"):
    torch.cuda.nvtx.mark("here")
    digest.add("nvtx", (x + 1).sum())
torch.cuda.nvtx.range_pop()
with torch.autograd.profiler.emit_nvtx():
    digest.add("emit_nvtx", (x @ x).tanh())
with torch.cuda.profiler.profile():
    digest.add("profiler start and stop", (x - 1).sum())
digest.print()
