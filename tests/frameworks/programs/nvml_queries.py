# needs: packages=pynvml,torch
"""NVML beside CUDA, as NCCL and monitoring use it; nvidia-smi as a child process.

What names the one GPU (UUID, serial number, PCI address) is compared here and not digested: results of two machines with
the same kind of GPU may be compared."""
import re
import subprocess

import pynvml
import torch

from shared.digest import Digest

digest = Digest()
x = torch.ones(1000, device="cuda")
pynvml.nvmlInit()
count = pynvml.nvmlDeviceGetCount()

def text(answer):
    return answer.decode() if isinstance(answer, bytes) else answer


uuids = []
for index in range(count):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuids.append(text(pynvml.nvmlDeviceGetUUID(device)))
    by_address = pynvml.nvmlDeviceGetHandleByPciBusId(pynvml.nvmlDeviceGetPciInfo(device).busId)
    digest.add(f"device {index}", pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetMemoryInfo(device).total,
               "same by its PCI address", text(pynvml.nvmlDeviceGetUUID(by_address)) == uuids[-1])
digest.add("driver", pynvml.nvmlSystemGetDriverVersion())
pynvml.nvmlShutdown()
digest.add("same UUID in CUDA and NVML", "GPU-" + str(torch.cuda.get_device_properties(0).uuid) in uuids)
listing = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, check=True, timeout=60)
digest.add("nvidia-smi", re.sub(r" \(UUID: .*?\)", "", listing.stdout.decode()),
           "same UUIDs", re.findall(r"UUID: (GPU-[0-9a-f-]+)\)", listing.stdout.decode()) == uuids)
digest.add("sum", x.sum())
digest.print()
