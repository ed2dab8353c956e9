# needs: packages=torch
"""fork: before CUDA is used (each child uses it), after it is used (DataLoader workers; CUDA in a child is an error)."""
import os

import torch

from shared.digest import Digest
from shared.seeding import seed_torch


def in_fork(function):
    """What `function` returns in a forked child, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = function()
        except Exception as error:
            text = f"{type(error).__name__}: {str(error)[:60]}"
        os.write(writer, text.encode())
        os._exit(7)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    return text


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((64,), float(index))


seed_torch()
digest = Digest()
digest.add("child before CUDA is used here", in_fork(lambda: str(torch.arange(1000, device="cuda").sum().item())))
x = torch.randn(512, 512, device="cuda")
before = (x @ x).cpu()
digest.add("child after CUDA is used here", in_fork(lambda: str(torch.ones(3, device="cuda"))))
digest.add("available in a child", in_fork(lambda: str(torch.cuda.is_initialized())))
loader = torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=3, pin_memory=True)
total = torch.zeros(64, device="cuda")
for epoch in range(2):
    for batch in loader:
        total += batch.cuda(non_blocking=True).sum(dim=0)
digest.add("loader", total)
digest.add("same as before the forks", bool(((x @ x).cpu() == before).all()))
digest.print()
