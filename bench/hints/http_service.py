#!/usr/bin/env python3
"""An HTTP service on Python's asyncio: JSON with a text comes, is tokenised, and a network answers.

    http_service.py [--expect]

Prints "ready PORT" when it is warm. The answer's headers say what the service saw: X-Own-Us from the receive to the end of
the GPU's work, X-Gpu-Us of that the part with the GPU, X-Lead-Us the part before. With --expect it says when it will need
the GPU, as it has measured itself. Without PyTorch a kernel of the driver's API stands in. Ends with its stdin.
"""
import asyncio
import ctypes
import json
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = 128


class Network:
    """A small transformer as a CUDA graph."""

    def __init__(self, torch):
        self.torch = torch
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        model = torch.nn.Sequential(torch.nn.Embedding(32768, 512), torch.nn.TransformerEncoder(layer, 4))
        self.model = model.half().cuda().eval()
        self.tokens = torch.zeros(1, TOKENS, dtype=torch.long, device="cuda")
        self.pinned = torch.zeros(1, TOKENS, dtype=torch.long).pin_memory()
        self.stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(self.stream):
            for _ in range(3):
                self.model(self.tokens)
            self.stream.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.output = self.model(self.tokens)[:, 0, :8].float()
        for _ in range(20):
            self.answer([1] * TOKENS)

    def answer(self, tokens):
        self.pinned[0] = self.torch.tensor(tokens)
        begun = time.perf_counter()
        with self.torch.cuda.stream(self.stream):
            self.tokens.copy_(self.pinned, non_blocking=True)
            self.graph.replay()
        self.stream.synchronize()
        return begun, time.perf_counter()


class Kernel:
    """Where there is no PyTorch."""

    def __init__(self):
        sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "integration", "support"))
        # pylint: disable-next=import-outside-toplevel
        from cuda_driver import Cuda
        self.cuda = Cuda()

    def answer(self, tokens):
        begun = time.perf_counter()
        self.cuda.launch(len(tokens))
        self.cuda.call("cuCtxSynchronize")
        return begun, time.perf_counter()


def make_work():
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        return Kernel()
    return Network(torch) if torch.cuda.is_available() else Kernel()


def tokenise(text):
    """By hand, as slowly as Python is."""
    tokens = [(hash(word) * 31 + len(word)) % 32768 for word in text.lower().split()]
    return (tokens + [0] * TOKENS)[:TOKENS]


class Service:
    def __init__(self, expects):
        self.work = make_work()
        self.lead_us = 500.0  # as measured
        self.expect = None
        if expects:
            self.expect = getattr(ctypes.CDLL("libcuda.so.1"), "tally_expect_work", None)

    async def serve(self, reader, writer):
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError, IndexError):
                writer.close()
                return
            received = time.perf_counter()
            if self.expect is not None:
                self.expect(ctypes.c_ulong(int(self.lead_us)))
            tokens = tokenise(json.loads(body)["text"])
            begun, done = self.work.answer(tokens)
            lead_us = (begun - received) * 1e6
            self.lead_us += (lead_us - self.lead_us) / 16
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Own-Us: {(done - received) * 1e6:.1f}\r\n"
                         f"X-Gpu-Us: {(done - begun) * 1e6:.1f}\r\nX-Lead-Us: {lead_us:.1f}\r\n\r\nOK".encode())
            await writer.drain()

    async def run(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        print("ready", server.sockets[0].getsockname()[1], flush=True)
        async with server:
            await server.serve_forever()


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    service = Service("--expect" in sys.argv[1:])
    threading.Thread(target=end_with_stdin, daemon=True).start()
    asyncio.run(service.run())
