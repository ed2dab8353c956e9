# needs: packages=torch
# tolerance: 1e-4
"""cuSOLVER and MAGMA-free linear algebra: factorisations, solvers, eigenvalues, singular values, batched."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
for dtype in (torch.float32, torch.float64):
    a = torch.randn(128, 128, device="cuda", dtype=dtype)
    b = torch.randn(128, 16, device="cuda", dtype=dtype)
    positive = a @ a.t() + 128 * torch.eye(128, device="cuda", dtype=dtype)
    digest.add(f"cholesky {dtype}", torch.linalg.cholesky(positive), torch.cholesky_solve(b, torch.linalg.cholesky(positive)))
    digest.add(f"lu {dtype}", *torch.linalg.lu_factor(a), torch.linalg.solve(a, b), torch.linalg.inv(a))
    digest.add(f"qr {dtype}", *torch.linalg.qr(a))
    digest.add(f"svd {dtype}", *torch.linalg.svd(a, driver="gesvd"))
    digest.add(f"svd values {dtype}", torch.linalg.svdvals(a, driver="gesvdj"))
    digest.add(f"eigh {dtype}", *torch.linalg.eigh(positive))
    digest.add(f"norms {dtype}", torch.linalg.matrix_norm(a, 2), torch.linalg.slogdet(a), torch.linalg.cond(a))
    digest.add(f"triangular {dtype}", torch.linalg.solve_triangular(positive.tril(), b, upper=False))
    digest.add(f"least squares {dtype}", torch.linalg.lstsq(a, b).solution)
    batch = torch.randn(32, 24, 24, device="cuda", dtype=dtype)
    symmetric = batch @ batch.transpose(1, 2) + 24 * torch.eye(24, device="cuda", dtype=dtype)
    digest.add(f"batched {dtype}", torch.linalg.cholesky(symmetric), torch.linalg.solve(batch, batch[:, :, :2]),
               torch.linalg.eigvalsh(symmetric), torch.linalg.inv(symmetric), torch.linalg.det(batch))
digest.add("exponential", torch.linalg.matrix_exp(batch / 24), torch.linalg.matrix_power(batch / 24, 5))
digest.print()
