# needs: packages=torch
"""CUDA tensors between two processes through torch.multiprocessing: both see one allocation."""
import torch
import torch.multiprocessing as multiprocessing

from shared.digest import Digest
from shared.seeding import seed_torch


def double_in_place(inbox, outbox):
    tensor = inbox.get()
    tensor.mul_(2)
    torch.cuda.synchronize()
    outbox.put(tensor.sum().item())
    made_here = torch.arange(1000, device="cuda", dtype=torch.float32)
    outbox.put(made_here)
    assert inbox.get() == "done"


def main():
    seed_torch()
    digest = Digest()
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=double_in_place, args=(inbox, outbox), daemon=True)
    child.start()
    tensor = torch.randint(0, 100, (4096,), device="cuda").float()
    digest.add("before", tensor)
    inbox.put(tensor)
    digest.add("sum in the child", outbox.get(timeout=80))
    digest.add("after", tensor)
    theirs = outbox.get(timeout=80)
    digest.add("made by the child", theirs.clone())
    del theirs
    inbox.put("done")
    child.join(80)
    digest.add("exit status", child.exitcode)
    digest.print()


if __name__ == "__main__":
    main()
