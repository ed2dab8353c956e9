"""A training of the catalogue on several GPUs in one process: a replica on each, whose gradients NCCL sums after each
backward pass.

All replicas have the same numbers and batches, so the loss is, bit for bit, that of the training on one GPU.
"""
import importlib

import torch

import catalogue
from training_models import NETWORKS, SEED, digest_of
from worker import built


class Replica:
    def __init__(self, network, device):
        self.device = device
        torch.manual_seed(SEED)
        with torch.cuda.device(device), torch.device("cuda"):
            self.model, self.loss, batch = network()
        self.model.train()
        self.batch = tuple(part.cpu().pin_memory() for part in batch)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def backward(self):
        with torch.cuda.device(self.device):
            batch = [part.cuda(non_blocking=True) for part in self.batch]
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = self.loss(*batch)
            loss.backward()
            return loss

    def gradients(self):
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]

    def learn(self, summed, count):
        with torch.cuda.device(self.device):
            summed.div_(count)
            gradients = self.gradients()
            for gradient, part in zip(gradients, summed.split([gradient.numel() for gradient in gradients])):
                gradient.copy_(part.view_as(gradient))
            self.optimizer.step()


class Training:
    def __init__(self, network, num_gpus):
        self.replicas = [Replica(network, device) for device in range(num_gpus)]
        first = self._step()
        for _ in range(2):
            self._step()
        for device in range(num_gpus):
            torch.cuda.synchronize(device)
        self.facts = {"digest": digest_of(first), "loss": first.item(), "torch": torch.__version__,
                      "gpu_gib": round(max(map(torch.cuda.max_memory_reserved, range(num_gpus))) / 2**30, 2)}

    def _step(self):
        losses = [replica.backward() for replica in self.replicas]
        summed = [torch.cat([gradient.reshape(-1) for gradient in replica.gradients()]) for replica in self.replicas]
        torch.cuda.nccl.all_reduce(summed)
        for replica, gradients in zip(self.replicas, summed):
            replica.learn(gradients, len(self.replicas))
        return losses[0]

    def step(self):
        """Queues a step; returns what waits for it."""
        self._step()
        events = []
        for replica in self.replicas:
            with torch.cuda.device(replica.device):
                events.append(torch.cuda.Event())
                events[-1].record()
        return lambda: [event.synchronize() for event in events]


def build(name, num_gpus):
    if not catalogue.is_training(name) or name.endswith("-graph"):
        raise SystemExit(f"there is no training '{name}' on several GPUs")
    importlib.import_module(catalogue.LIBRARIES.get(name, "torch"))
    return built(Training, NETWORKS[name], num_gpus)
