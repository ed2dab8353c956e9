# needs: packages=torch
"""cuBLAS and cuBLASLt: matrix products in all types, batched, with epilogue, int8 and fp8."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
a = torch.randn(1024, 768, device="cuda")
b = torch.randn(768, 512, device="cuda")
digest.add("fp32", a @ b)
torch.backends.cuda.matmul.allow_tf32 = True
digest.add("tf32", a @ b)
torch.backends.cuda.matmul.allow_tf32 = False
for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.complex64):
    digest.add(str(dtype), a.to(dtype) @ b.to(dtype))
batch = torch.randn(16, 128, 64, device="cuda")
digest.add("batched", torch.bmm(batch, batch.transpose(1, 2)), torch.baddbmm(batch[:, :, :1], batch, batch.transpose(1, 2)))
digest.add("vector", a @ b[:, 0], torch.outer(a[:, 0], b[0]), torch.einsum("ij,jk,kl->il", a, b, b.t()))
bias = torch.randn(512, device="cuda", dtype=torch.half)
digest.add("linear with bias", torch.nn.functional.linear(a.half(), b.half().t().contiguous(), bias))
left = torch.randint(-8, 8, (128, 256), device="cuda", dtype=torch.int8)
right = torch.randint(-8, 8, (256, 64), device="cuda", dtype=torch.int8)
digest.add("int8", torch._int_mm(left, right))
if torch.cuda.get_device_capability() >= (8, 9):
    one = torch.ones((), device="cuda")
    product = torch._scaled_mm(a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t(), scale_a=one,
                               scale_b=one, out_dtype=torch.bfloat16)
    digest.add("fp8", product)
digest.print()
