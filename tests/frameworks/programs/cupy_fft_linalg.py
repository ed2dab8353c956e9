# needs: packages=cupy
# tolerance: 1e-4
"""CuPy: FFT with plans, SVD, QR, eigenvalues, solvers, sparse matrices."""
import cupy
import cupyx.scipy.fft
import cupyx.scipy.sparse as sparse
import cupyx.scipy.sparse.linalg

from shared.digest import Digest

digest = Digest()
generator = cupy.random.default_rng(3)
x = generator.standard_normal((64, 512))
digest.add("fft", cupy.fft.fft(x), cupy.fft.rfft(x.astype(cupy.float32)), cupy.fft.ifftn(x.astype(cupy.complex64)))
plan = cupyx.scipy.fft.get_fft_plan(x.astype(cupy.complex128), axes=1)
with plan:
    digest.add("planned fft", cupyx.scipy.fft.fft(x.astype(cupy.complex128), axis=1))
a = generator.standard_normal((96, 96))
positive = a @ a.T + 96 * cupy.eye(96)
digest.add("svd", *cupy.linalg.svd(a))
digest.add("qr", *cupy.linalg.qr(a))
digest.add("eigh", *cupy.linalg.eigh(positive))
digest.add("solve", cupy.linalg.solve(a, a[:, :4]), cupy.linalg.inv(positive), cupy.linalg.cholesky(positive), cupy.linalg.det(a / 10))
dense = generator.standard_normal((400, 400))
dense[cupy.abs(dense) < 1.8] = 0
matrix = sparse.csr_matrix(dense)
vector = generator.standard_normal(400)
digest.add("sparse", matrix @ vector, (matrix @ matrix).toarray(), matrix.tocoo().row, matrix.T.tocsr().indices)
system = matrix @ matrix.T + 50 * sparse.eye(400, format="csr")
digest.add("conjugate gradients", cupyx.scipy.sparse.linalg.cg(system, vector, maxiter=30)[0])
digest.print()
