# needs: packages=torch
"""CUDA_VISIBLE_DEVICES: none, the first, by unknown index; what PyTorch then sees."""
import torch

from shared import child_process
from shared.digest import Digest


def child(_):
    print(torch.cuda.is_available(), torch.cuda.device_count(), flush=True)
    if torch.cuda.device_count():
        print(torch.cuda.get_device_name(0), torch.ones(10, device="cuda:0").sum().item(), flush=True)


def main():
    digest = Digest()
    for devices in ("", "-1", "0", "99", "0,99"):
        run = child_process.run("count", CUDA_VISIBLE_DEVICES=devices)
        digest.add(f"'{devices}'", run.returncode, run.stdout)
    digest.print()


if __name__ == "__main__":
    child_process.start(main, child)
