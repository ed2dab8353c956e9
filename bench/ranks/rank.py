"""One rank of a training that torchrun starts on every GPU: what ranks.py measures. Knows nothing of Tally.

Prints one line of JSON from rank 0: milliseconds of each step by the clock of the processor, when each ended (seconds of
CLOCK_MONOTONIC), digest of the losses of all ranks. RANKS_READY=PATH: a file that rank 0 makes after its warm-up. With
RANKS_KILL=RANK:STEP that rank kills itself before that step, as if the machine had; the others then print what NCCL
told them.
"""
import hashlib
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as distributed
from torch.distributed.fsdp import fully_shard

SEED = 20261121
WARM_UP = 5


def resnet50():
    import torchvision
    model = torchvision.models.resnet50(weights=None).cuda()
    pictures = torch.randn(64, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")
    parts = [part for part in model.modules() if isinstance(part, torchvision.models.resnet.Bottleneck)]
    return model, parts, lambda run: torch.nn.functional.cross_entropy(run(pictures), labels)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    tokens = torch.randint(0, 50000, (8, 1024), device="cuda")
    return model, list(model.transformer.h), lambda run: run(input_ids=tokens, labels=tokens).loss


def main():
    network, way, steps = {"resnet50": resnet50, "gpt2": gpt2}[sys.argv[1]], sys.argv[2], int(sys.argv[3])
    rank = int(os.environ["RANK"])
    dies_rank, _, dies_step = os.environ.get("RANKS_KILL", "-1:0").partition(":")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(SEED)
    model, parts, loss_of = network()
    if way == "fsdp":
        for part in parts:
            fully_shard(part)
        fully_shard(model)
        run = model
    else:
        model.to(memory_format=torch.channels_last)  # FSDP takes no parameters that are not contiguous
        run = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(SEED + rank)
    losses, times, ends = [], [], []
    for step in range(WARM_UP + steps):
        if rank == int(dies_rank) and step == int(dies_step):
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(run)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        torch.cuda.synchronize()
        if step >= WARM_UP:
            times.append((time.perf_counter() - began) * 1e3)
            ends.append(time.monotonic())
        if step == WARM_UP and rank == 0 and "RANKS_READY" in os.environ:
            with open(os.environ["RANKS_READY"], "wb"):
                pass
    everybodys = [None] * distributed.get_world_size()
    distributed.all_gather_object(everybodys, torch.stack(losses).float().cpu().numpy().tobytes())
    if rank == 0:
        digest = hashlib.sha256(b"".join(everybodys)).hexdigest()[:16]
        print(json.dumps({"times_ms": times, "ends": ends, "digest": digest, "ranks": len(everybodys)}), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
