#!/usr/bin/env python3
"""One model of the bench, as a worker that forwarding.py starts twice: natively and under tally-run.

    model_worker.py PART        PART: bert-eager, bert-graph, gpt2-training, resnet-training

Builds the model (random weights, fixed seed, nothing downloaded), warms up, prints {"ready": true, "digest": ...}, then
answers each line "N" on stdin with a JSON list of N times in milliseconds. Both workers are alive at once and are asked by
turns, so that what the machine does meanwhile meets both alike. Ends with stdin.
"""
import hashlib
import json
import os
import sys
import time

import torch

SEED = 20261121


def digest(*tensors):
    hasher = hashlib.sha256()
    for tensor in tensors:
        hasher.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()[:16]


def timed(function, steps=1):
    """Milliseconds of one step of `steps` with a synchronisation at the end."""
    begin = time.perf_counter()
    for _ in range(steps):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3 / steps


def bert(as_graph):
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig()).cuda().half().eval()
    tokens = torch.randint(0, 30000, (1, 128), device="cuda")
    mask = torch.ones_like(tokens)

    def infer():
        with torch.inference_mode():
            return model(input_ids=tokens, attention_mask=mask).last_hidden_state

    for _ in range(20):
        result = infer()
    if not as_graph:
        return digest(result), lambda: timed(infer)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            infer()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = infer()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    return digest(captured), lambda: timed(graph.replay)


def gpt2_training():
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16)).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50000, (8, 1024), device="cuda")
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses[:] = [loss]

    step()
    first = digest(losses[0])
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    return first, lambda: timed(step)


class Pictures(torch.utils.data.Dataset):
    """Synthetic pictures; the conversion to floating point is the work that a loader's worker has."""

    def __init__(self):
        generator = torch.Generator().manual_seed(SEED)
        self.pictures = torch.randint(0, 256, (256, 3, 224, 224), dtype=torch.uint8, generator=generator)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return self.pictures[index % 256].float().div_(127.5).sub_(1), index % 1000


def resnet_training():
    import torchvision
    model = torchvision.models.resnet50(weights=None).cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    workers = max(2, min(8, (os.cpu_count() or 2) // 2))
    loader = iter(torch.utils.data.DataLoader(Pictures(), batch_size=64, num_workers=workers, pin_memory=True,
                                              persistent_workers=True))
    losses = []

    def step():
        pictures, labels = next(loader)
        pictures = pictures.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        labels = labels.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        losses[:] = [loss]

    # The first step with algorithms that do not depend on anything measured, so that its result can be compared.
    torch.backends.cudnn.deterministic = True
    step()
    first = digest(losses[0])
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.benchmark = True
    for _ in range(8):
        step()
    torch.cuda.synchronize()
    # Five steps to a sample: a loop that trains does not synchronise after each.
    return first, lambda: timed(step, 5)


PARTS = {"bert-eager": lambda: bert(False), "bert-graph": lambda: bert(True), "gpt2-training": gpt2_training,
         "resnet-training": resnet_training}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    torch.manual_seed(SEED)
    first, sample = PARTS[sys.argv[1]]()
    torch.cuda.synchronize()
    print(json.dumps({"ready": True, "digest": first, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps([round(sample(), 6) for _ in range(int(line))]), flush=True)


if __name__ == "__main__":
    main()
