# needs: packages=torch
# domain: own
"""A kernel that fails: an index out of range is PyTorch's device-side assertion, and every later call reports it."""
import torch

from shared import child_process
from shared.digest import Digest


def child(_):
    values = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    try:
        chosen = values[torch.tensor([10], device="cuda")]
        torch.cuda.synchronize()
        print("no error", chosen)
    except RuntimeError as error:
        print("device-side assert triggered" in str(error), flush=True)
    try:
        torch.ones(3, device="cuda")
        torch.cuda.synchronize()
        print("no second error")
    except RuntimeError:
        print("second error")


def main():
    digest = Digest()
    run = child_process.run("assert")
    digest.add("child", run.returncode, run.stdout)
    digest.print()


if __name__ == "__main__":
    child_process.start(main, child)
