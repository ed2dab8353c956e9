# needs: packages=torch
# tolerance: 1e-2
"""Scaled dot-product attention with every backend, forward and backward, and a transformer layer."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
q, k, v = (torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.half).requires_grad_() for _ in range(3))
attention = torch.nn.functional.scaled_dot_product_attention
for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
    for causal in (False, True):
        with sdpa_kernel(backend):
            output = attention(q, k, v, is_causal=causal)
            gradients = torch.autograd.grad(output.float().square().mean(), (q, k, v))
        digest.add(f"{backend.name}, causal {causal}", output, *gradients)
layer = torch.nn.TransformerEncoderLayer(256, 4, batch_first=True).cuda().eval()
with torch.inference_mode():
    digest.add("encoder layer", layer(torch.randn(4, 64, 256, device="cuda")))
digest.print()
