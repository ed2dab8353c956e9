# needs: packages=torch
"""Element-wise operations, reductions, sorting and indexing in the common types."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.randn(1024, 1024, device="cuda")
y = torch.randn(1024, 1024, device="cuda")
digest.add("arithmetic", x * y + x.sin() - y.exp().clamp(max=3), (x > y).sum(), torch.where(x > 0, x, y.abs().sqrt()))
digest.add("special", torch.erf(x), torch.lgamma(x.abs() + 1), torch.special.i0(x), torch.digamma(x.abs() + 1))
for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.complex64):
    digest.add(f"product {dtype}", (x.to(dtype) * y.to(dtype) - 1))
digest.add("integers", (x * 1000).int() // 7, (x * 100).long() % 13, (x * 100).to(torch.uint8) ^ 0x5A)
digest.add("reductions", x.sum(), x.mean(dim=0), x.var(dim=1), x.amax(), x.argmin(dim=1), x.logsumexp(dim=0), x.norm())
digest.add("sorting", x.sort(dim=1).values, x.topk(17, dim=0).indices, x.kthvalue(5, dim=1).values, x.median())
digest.add("scans", x.cumsum(dim=0), x.double().cumprod(dim=1).clamp(-1, 1), x.cummax(dim=1).values)
index = torch.randint(0, 1024, (4096,), device="cuda")
digest.add("indexing", x[index], x.index_select(1, index), x.gather(0, index.reshape(4, 1024)), x[x > 2.5])
digest.add("scatter", torch.zeros(1024, device="cuda").index_add_(0, index, torch.ones(4096, device="cuda")),
           torch.bincount(index, minlength=1024), torch.unique(index), torch.histc(x, 64))
digest.add("shapes", torch.cat([x, y], 1)[::3, ::5], x.t().contiguous(), x.roll(7, 1), torch.tril(x), x.unfold(0, 64, 32))
digest.print()
