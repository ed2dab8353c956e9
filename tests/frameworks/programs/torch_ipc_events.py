# needs: packages=torch
"""An interprocess event: recorded here, waited for by another process."""
import torch
import torch.multiprocessing as multiprocessing

from shared.digest import Digest
from shared.seeding import seed_torch


def wait_for(handle, outbox):
    device = torch.device("cuda", 0)
    event = torch.cuda.Event.from_ipc_handle(device, handle)
    event.synchronize()
    outbox.put(event.query())


def main():
    seed_torch()
    digest = Digest()
    context = multiprocessing.get_context("spawn")
    outbox = context.Queue()
    event = torch.cuda.Event(interprocess=True)
    x = torch.randn(1 << 20, device="cuda")
    for _ in range(50):
        x = x.sin()
    event.record()
    child = context.Process(target=wait_for, args=(event.ipc_handle(), outbox), daemon=True)
    child.start()
    digest.add("seen by the child", outbox.get(timeout=80))
    child.join(80)
    digest.add("exit status", child.exitcode)
    digest.add("work", x)
    digest.print()


if __name__ == "__main__":
    main()
