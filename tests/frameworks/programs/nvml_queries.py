# needs: packages=pynvml,torch
"""NVML beside CUDA, as NCCL and monitoring use it; nvidia-smi as a child process."""
import subprocess

import pynvml
import torch

from shared.digest import Digest

digest = Digest()
x = torch.ones(1000, device="cuda")
pynvml.nvmlInit()
count = pynvml.nvmlDeviceGetCount()
for index in range(count):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    digest.add(f"device {index}", pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device), pynvml.nvmlDeviceGetMemoryInfo(device).total,
               pynvml.nvmlDeviceGetPciInfo(device).busId)
digest.add("driver", pynvml.nvmlSystemGetDriverVersion())
pynvml.nvmlShutdown()
digest.add("same UUID in CUDA and NVML", str(torch.cuda.get_device_properties(0).uuid))
listing = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, check=True, timeout=60)
digest.add("nvidia-smi", listing.stdout)
digest.add("sum", x.sum())
digest.print()
