# needs: packages=torch
"""How programs end: returning with work queued, os._exit, exceptions at interpreter shutdown, atexit, daemon threads, signals."""
import atexit
import os
import signal
import sys
import threading

from shared import child_process
from shared.digest import Digest


class AtShutdown:
    """Uses the GPU when the interpreter takes its modules apart."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __del__(self):
        print("destructor", self.tensor.sum().item(), flush=True)
        raise RuntimeError("from a destructor")


def child(way):
    import torch

    x = torch.ones(1 << 20, device="cuda")
    print("sum", x.sum().item(), flush=True)
    for _ in range(100):
        x = x + 1
    if way == "returns":
        return
    if way == "exit":
        sys.exit(3)
    if way == "_exit":
        os._exit(4)
    if way == "exception":
        raise ValueError("on purpose")
    if way == "atexit":
        atexit.register(lambda: print("atexit", x.sum().item(), flush=True))
    if way == "destructor":
        globals()["at_shutdown"] = AtShutdown(x)
    if way == "daemon thread":
        def forever():
            y = x
            while True:
                y = (y * 1.0001).cos()

        threading.Thread(target=forever, daemon=True).start()
    if way == "abort":
        os.abort()
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)


def main():
    digest = Digest()
    ways = ("returns", "exit", "_exit", "exception", "atexit", "destructor", "daemon thread", "abort", "kill", "interrupt")
    for way, run in child_process.run_all(ways):
        digest.add(way, run.returncode, run.stdout)
    digest.print()


if __name__ == "__main__":
    child_process.start(main, child)
