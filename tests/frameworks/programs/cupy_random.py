# needs: packages=cupy
"""CuPy: the legacy generators (cuRAND) and the new ones."""
import cupy

from shared.digest import Digest

digest = Digest()
for kind in (cupy.cuda.curand.CURAND_RNG_PSEUDO_XORWOW, cupy.cuda.curand.CURAND_RNG_PSEUDO_PHILOX4_32_10,
             cupy.cuda.curand.CURAND_RNG_PSEUDO_MRG32K3A):
    state = cupy.random.RandomState(seed=7, method=kind)
    digest.add(f"cuRAND {kind}", state.uniform(size=1000), state.normal(size=1000), state.randint(0, 100, 1000), state.poisson(3.0, 1000))
for kind in (cupy.random.XORWOW, cupy.random.Philox4x3210, cupy.random.MRG32k3a):
    generator = cupy.random.Generator(kind(seed=7))
    digest.add(kind.__name__, generator.random(1000), generator.standard_normal(1000), generator.gamma(2.0, size=1000),
               generator.integers(0, 1000, 1000))
cupy.random.seed(5)
digest.add("module", cupy.random.rand(100), cupy.random.permutation(100), cupy.random.choice(100, 10))
digest.print()
