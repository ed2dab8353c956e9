# needs: packages=jax
# tolerance: 1e-4
"""JAX: FFT and linear algebra in both precisions."""
import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp

from shared.digest import Digest

digest = Digest()
key = jax.random.key(1)
for dtype in (jnp.float32, jnp.float64):
    name = jnp.dtype(dtype).name
    x = jax.random.normal(key, (64, 96), dtype)
    digest.add(f"fft {name}", jnp.fft.fft(x), jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.fft2(x))
    a = jax.random.normal(key, (64, 64), dtype)
    positive = a @ a.T + 64 * jnp.eye(64, dtype=dtype)
    digest.add(f"cholesky {name}", jnp.linalg.cholesky(positive))
    digest.add(f"solve {name}", jnp.linalg.solve(a, a[:, :3]), jnp.linalg.inv(positive))
    digest.add(f"qr {name}", *jnp.linalg.qr(a))
    digest.add(f"svd {name}", jnp.linalg.svd(a, compute_uv=False))
    digest.add(f"eigh {name}", *jnp.linalg.eigh(positive))
    digest.add(f"triangular {name}", jax.scipy.linalg.solve_triangular(positive, a, lower=True))
    digest.add(f"expm {name}", jax.scipy.linalg.expm(a / 64))
digest.print()
