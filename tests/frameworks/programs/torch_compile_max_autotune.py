# needs: packages=torch,triton
# tolerance: 1e-2
"""torch.compile(mode="max-autotune-no-cudagraphs"): which product kernel wins is timed, so digests may differ from run to run."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch


@torch.compile(mode="max-autotune-no-cudagraphs")
def layer(x, weight, bias):
    return torch.nn.functional.relu(x @ weight + bias)


def main():
    seed_torch()
    digest = Digest()
    x = torch.randn(256, 256, device="cuda", dtype=torch.half)
    weight = torch.randn(256, 128, device="cuda", dtype=torch.half)
    digest.add("layer", layer(x, weight, torch.randn(128, device="cuda", dtype=torch.half)))
    digest.print()


if __name__ == "__main__":
    main()
