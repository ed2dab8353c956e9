# needs: packages=jax
"""Pallas: a kernel written in JAX, compiled for the GPU through Triton."""
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from shared.digest import Digest


def scaled_sum(x, y, output):
    output[...] = x[...] * 2.0 + jnp.tanh(y[...])


digest = Digest()
x = jax.random.normal(jax.random.key(7), (1024,))
y = jax.random.normal(jax.random.key(8), (1024,))
kernel = pl.pallas_call(scaled_sum, out_shape=jax.ShapeDtypeStruct((1024,), jnp.float32), grid=(8,),
                        in_specs=[pl.BlockSpec((128,), lambda i: (i,)), pl.BlockSpec((128,), lambda i: (i,))],
                        out_specs=pl.BlockSpec((128,), lambda i: (i,)), compiler_params=plgpu.CompilerParams(num_warps=4))
digest.add("kernel", jax.jit(kernel)(x, y))
digest.print()
