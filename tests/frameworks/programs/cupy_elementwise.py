# needs: packages=cupy
"""CuPy: ufuncs, reductions, sorting, fused and user-written element-wise kernels (NVRTC)."""
import cupy

from shared.digest import Digest

digest = Digest()
generator = cupy.random.default_rng(1)
x = generator.standard_normal((500, 700), dtype=cupy.float32)
y = generator.standard_normal((500, 700), dtype=cupy.float32)
digest.add("arithmetic", x * y + cupy.sin(x) - cupy.exp(y), cupy.where(x > 0, x, -y), x.astype(cupy.float16) * 2)
digest.add("reductions", x.sum(), x.mean(axis=0), x.max(axis=1), x.argmin(), cupy.linalg.norm(x), cupy.std(y))
digest.add("sorting", cupy.sort(x, axis=1), cupy.argsort(x[0]), cupy.unique((x * 10).astype(int)), cupy.partition(x[0], 50)[:50].sum())
digest.add("scans", cupy.cumsum(x[0]), cupy.histogram(x, bins=20)[0], cupy.bincount((abs(x) * 10).astype(int).ravel()))
squares = cupy.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = (a - b) * (a - b)", "squares")
digest.add("element-wise kernel", squares(x, y))
total = cupy.ReductionKernel("T a", "T b", "a * a", "a + b", "b = sqrt(a)", "0", "total")
digest.add("reduction kernel", total(x, axis=1))


@cupy.fuse()
def fused(a, b):
    return cupy.tanh(a) * b + a


digest.add("fused", fused(x, y))
digest.add("product", x @ y.T, cupy.einsum("ij,ij->i", x, y), cupy.tensordot(x, y, axes=([0], [0])))
digest.add("indexing", x[::3, 5], cupy.take(x, cupy.arange(0, 1000, 7)), x[x > 3], cupy.pad(x[:3, :3], 2))
digest.print()
