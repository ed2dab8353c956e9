# needs: packages=torch,triton
# domain: own
"""Triton's device_print: device printf in a kernel that Triton compiled; the text must arrive on standard output."""
import torch
import triton
import triton.language as tl

from shared import child_process
from shared.digest import Digest


@triton.jit
def show(source, BLOCK: tl.constexpr):
    tl.device_print("value", tl.load(source + tl.arange(0, BLOCK)))


def child(_):
    show[(1,)](torch.arange(32, device="cuda"), BLOCK=32, num_warps=1)
    torch.cuda.synchronize()


def main():
    digest = Digest()
    run = child_process.run("print")
    lines = sorted(line.strip() for line in run.stdout.splitlines())
    digest.add("lines", len(lines), b"\n".join(lines))
    digest.add("exit status", run.returncode)
    assert len(lines) >= 32, run.stdout
    digest.print()


if __name__ == "__main__":
    child_process.start(main, child)
