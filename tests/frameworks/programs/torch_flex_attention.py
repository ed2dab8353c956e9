# needs: packages=torch,triton
# tolerance: 1e-2
"""Compiled flex attention: Triton templates with a mask of one's own."""
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from shared.digest import Digest
from shared.seeding import seed_torch


def near(batch, head, query, key):
    return (query >= key) & (query - key < 64)


def main():
    seed_torch()
    digest = Digest()
    q, k, v = (torch.randn(1, 4, 256, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    mask = create_block_mask(near, B=None, H=None, Q_LEN=256, KV_LEN=256, device="cuda")
    digest.add("sliding window", torch.compile(flex_attention)(q, k, v, block_mask=mask))
    digest.print()


if __name__ == "__main__":
    main()
