#!/usr/bin/env python3
"""Best-effort work: a training in PyTorch, or a kernel of the driver's API where there is none.

Prints "ready" when it is warm. Lines of stdin: "go", "rest", "count" (answered with how many steps it has made).
"""
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def training(torch):
    torch.manual_seed(1)
    layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0) for _ in range(8)]
    model = torch.nn.Sequential(*layers).bfloat16().cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(8, 512, 1024, device="cuda", dtype=torch.bfloat16)

    def step():
        optimiser.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        optimiser.step()
        torch.cuda.current_stream().synchronize()
    return step


def kernels():
    sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "integration", "support"))
    # pylint: disable-next=import-outside-toplevel
    from cuda_driver import Cuda
    cuda = Cuda()

    def step():
        cuda.make_current()
        for _ in range(50):
            cuda.launch()
        cuda.call("cuCtxSynchronize")
    return step


def make_step():
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        return kernels()
    return training(torch) if torch.cuda.is_available() else kernels()


class Load:
    def __init__(self):
        self.step = make_step()
        for _ in range(3):
            self.step()
        self.works = threading.Event()
        self.num_steps = 0

    def run(self):
        while True:
            self.works.wait()
            self.step()
            self.num_steps += 1


if __name__ == "__main__":
    load = Load()
    threading.Thread(target=load.run, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "go":
            load.works.set()
        elif line.strip() == "rest":
            load.works.clear()
            time.sleep(0.3)
        print("{" + f'"steps": {load.num_steps}' + "}", flush=True)
    os._exit(0)
