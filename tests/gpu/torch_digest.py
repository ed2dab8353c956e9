#!/usr/bin/env python3
"""Stock PyTorch doing what people do; prints one digest per part. Run natively and under tally-run: the lines must agree.

    python3 torch_digest.py > native.txt
    tally-run --embedded python3 torch_digest.py > tally.txt
    diff native.txt tally.txt
"""
import hashlib
import sys
import time

import torch
import torchvision


def digest(*tensors):
    hasher = hashlib.sha256()
    for tensor in tensors:
        hasher.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()[:16]


def report(name, *tensors):
    print(f"{name}: {digest(*tensors)}", flush=True)


def timed(name, function, repeats):
    """Median milliseconds, to stderr: times differ from run to run, digests must not."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    print(f"{name}: median {times[len(times) // 2]:.3f} ms, p99 {times[int(len(times) * 0.99)]:.3f} ms", file=sys.stderr)


def main():
    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    x = torch.randn(1024, 1024, device="cuda")
    y = torch.randn(1024, 1024, device="cuda")
    report("elementwise", x * y + x.sin() - y.exp().clamp(max=3), (x > y).sum())
    report("matmul fp32", x @ y)
    report("matmul bf16", x.bfloat16() @ y.bfloat16())
    report("sort, cumsum", x.sort(dim=1).values, y.cumsum(dim=0))

    model = torchvision.models.resnet50(weights=None).cuda().half().eval()
    image = torch.randn(1, 3, 224, 224, device="cuda", dtype=torch.half)
    with torch.inference_mode():
        report("resnet50 fp16 batch 1", model(image))
        timed("resnet50 fp16 batch 1", lambda: model(image), 60)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(image)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = model(image)
        graph.replay()
        report("resnet50 cuda graph", captured)
        timed("resnet50 cuda graph", graph.replay, 100)

    layer = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    data = torch.randn(64, 512, device="cuda")
    target = torch.randint(0, 10, (64,), device="cuda")
    for _ in range(20):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(layer(data), target).backward()
        optimizer.step()
    report("mlp training, 20 steps", *layer.parameters())

    pinned = torch.randn(1 << 22).pin_memory()
    there = pinned.cuda(non_blocking=True)
    report("pinned round trip", there.cpu())
    report("pageable round trip", torch.arange(1 << 24, dtype=torch.float32).cuda().add_(1))
    print(f"memory: {torch.cuda.memory_allocated() > 0}", flush=True)


if __name__ == "__main__":
    main()
