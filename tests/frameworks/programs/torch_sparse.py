# needs: packages=torch
# tolerance: 1e-5
"""cuSPARSE: COO, CSR, BSR and semi-structured matrices."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
dense = torch.randn(512, 512, device="cuda")
dense[torch.rand(512, 512, device="cuda") > 0.05] = 0
other = torch.randn(512, 64, device="cuda")
coo = dense.to_sparse_coo()
digest.add("coo", coo.indices(), coo.values(), torch.sparse.mm(coo, other))
digest.add("coo sum", torch.sparse.sum(coo, dim=0), (coo + coo).coalesce())
csr = dense.to_sparse_csr()
digest.add("csr", csr.crow_indices(), csr.col_indices(), csr @ other, csr @ other[:, 0])
digest.add("csr product", (csr @ csr).to_dense())
digest.add("sampled", torch.sparse.sampled_addmm(csr, other, other.t().contiguous()).values())
bsr = dense.to_sparse_bsr((16, 16))
digest.add("bsr", bsr.values(), bsr.crow_indices())
csc = dense.to_sparse_csc()
digest.add("csc", csc.ccol_indices(), csc.row_indices(), csc.to_dense())
left = torch.randn(256, 512, device="cuda", requires_grad=True)
loss = torch.sparse.mm(coo.detach(), left.t()).square().mean()
loss.backward()
digest.add("gradient", left.grad)
pattern = torch.tensor([0, 0, 1, 1], device="cuda", dtype=torch.half).tile((128, 32)) * torch.randn(128, 128, device="cuda").half()
digest.add("2 of 4", torch.mm(torch.sparse.to_sparse_semi_structured(pattern), torch.randn(128, 128, device="cuda").half()))
digest.print()
