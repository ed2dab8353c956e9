"""Pictures made ready for a training, over and over: a job bound by the GPU's memory, of elementwise kernels."""
import torch

from training_models import SEED, digest_of, end_of_queue

NUM_PICTURES, SIDE, CROPPED = 256, 256, 224


class Preparation:
    """A batch of bytes is cropped, mirrored, scaled by its own mean and deviation, and mixed with itself."""

    def __init__(self):
        generator = torch.Generator("cuda").manual_seed(SEED)
        self.pictures = torch.randint(0, 256, (NUM_PICTURES, 3, SIDE, SIDE), dtype=torch.uint8, device="cuda", generator=generator)
        self.order = torch.randperm(NUM_PICTURES, device="cuda", generator=generator)
        first = self._prepared()
        for _ in range(2):
            self._prepared()
        torch.cuda.synchronize()
        self.facts = {"digest": digest_of(first), "torch": torch.__version__,
                      "gpu_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2)}

    def _prepared(self):
        edge = (SIDE - CROPPED) // 2
        batch = self.pictures[:, :, edge:edge + CROPPED, edge:edge + CROPPED].float() / 255
        batch = (batch - batch.mean((2, 3), keepdim=True)) / (batch.std((2, 3), keepdim=True) + 1e-5)
        batch = torch.where(self.order.view(-1, 1, 1, 1) % 2 == 0, batch.flip(3), batch)
        return (0.8 * batch + 0.2 * batch[self.order]).to(torch.bfloat16)

    def step(self):
        """Queues a batch; returns what waits for it."""
        self._prepared()
        return end_of_queue()
