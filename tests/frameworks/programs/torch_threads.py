# needs: packages=torch
"""Eight threads, each on a stream of its own, with autograd; threads that end with work in flight."""
import threading

import torch

from shared.digest import Digest
from shared.seeding import seed_torch


def work(index, results):
    generator = torch.Generator(device="cuda").manual_seed(index)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.randn(256, 256, device="cuda", generator=generator, requires_grad=True)
        for _ in range(10):
            loss = (x @ x).tanh().square().sum()
            (gradient,) = torch.autograd.grad(loss, x)
            x = (x - 0.01 * gradient).detach().requires_grad_()
        results[index] = (x.detach(), stream)


seed_torch()
digest = Digest()
torch.cuda.init()
for round in range(3):
    results = {}
    threads = [threading.Thread(target=work, args=(index, results)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(8):
        torch.cuda.current_stream().wait_stream(results[index][1])
    digest.add(f"round {round}", *(results[index][0] for index in range(8)))
digest.print()
