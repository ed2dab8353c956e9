# needs: packages=jax
# tolerance: 1e-3
"""JAX control flow: scan of a recurrent cell with its gradient, while_loop, cond, fori_loop, associative scan."""
import jax
import jax.numpy as jnp
from jax import lax

from shared.digest import Digest

digest = Digest()
keys = jax.random.split(jax.random.key(2), 3)
weights = jax.random.normal(keys[0], (64, 64)) * 0.1
inputs = jax.random.normal(keys[1], (100, 8, 64))


@jax.jit
def run(weights, inputs):
    def step(state, x):
        state = jnp.tanh(state @ weights + x)
        return state, jnp.mean(state)

    state, means = lax.scan(step, jnp.zeros((8, 64)), inputs)
    return jnp.sum(state**2), means


(value, means), gradient = jax.value_and_grad(run, has_aux=True)(weights, inputs)
digest.add("scan", value, means, gradient)
digest.add("while", lax.while_loop(lambda s: s[0] < 50, lambda s: (s[0] + 1, s[1] * 1.01), (0, jnp.ones(10)))[1])
digest.add("cond", jax.jit(lambda flag, x: lax.cond(flag, jnp.sin, jnp.cos, x))(True, inputs[0]))
digest.add("fori", lax.fori_loop(0, 20, lambda i, x: x + i * jnp.cos(x), jnp.zeros(100)))
digest.add("associative", lax.associative_scan(jnp.multiply, 1 + inputs[:, 0, 0] * 0.01))
# Added up atomically, in whatever order the threads come: of multiples of 1/64 the sum is exact.
digest.add("segments", jax.ops.segment_sum(jnp.round(inputs[:, 0, 0] * 64) / 64, jnp.arange(100) // 7, num_segments=15))
digest.print()
