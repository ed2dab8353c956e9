# needs: packages=torch
"""TorchScript and the jiterator: kernels that PyTorch writes and compiles with NVRTC while the program runs."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch


@torch.jit.script
def fused(x, y):
    z = x * y + 1.0
    return torch.tanh(z) * torch.sigmoid(x) - y


seed_torch()
digest = Digest()
x = torch.randn(256, 256, device="cuda")
y = torch.randn(256, 256, device="cuda")
for _ in range(4):  # the fuser compiles after it has profiled
    result = fused(x, y)
digest.add("script", result)
square_plus = torch.cuda.jiterator._create_jit_fn("template <typename T> T square_plus(T x, T y, T c) { return x * x + c * y; }", c=2.0)
digest.add("jiterator", square_plus(x, y), square_plus(x, y, c=0.5))
digest.add("nvrtc operators", torch.special.bessel_j0(x), torch.special.airy_ai(x.clamp(-2, 2)), torch.special.zeta(x.abs() + 2, y.abs() + 1))
digest.print()
