# needs: packages=jax
"""JAX: jit, grad, vmap, jvp, hessian, custom derivatives, checkpointing."""
import jax
import jax.numpy as jnp

from shared.digest import Digest

digest = Digest()
assert jax.default_backend() == "gpu", jax.default_backend()
keys = jax.random.split(jax.random.key(0), 4)
x = jax.random.normal(keys[0], (256, 128))
w = jax.random.normal(keys[1], (128, 64)) * 0.1


@jax.jit
def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


digest.add("jit", loss(w, x))
digest.add("grad", jax.grad(loss)(w, x))
digest.add("vmap", jax.vmap(jax.grad(loss), in_axes=(None, 0))(w, x.reshape(16, 16, 128)))
digest.add("jvp", jax.jvp(lambda w: loss(w, x), (w,), (w,))[1])
digest.add("hessian", jax.hessian(lambda v: jnp.sum(jnp.sin(v) * v[::-1]))(x[0, :20]))
digest.add("checkpoint", jax.grad(jax.checkpoint(loss))(w, x))


@jax.custom_vjp
def clipped(v):
    return v * 2


clipped.defvjp(lambda v: (v * 2, None), lambda _, gradient: (jnp.clip(gradient, -0.1, 0.1),))
digest.add("custom derivative", jax.grad(lambda v: jnp.sum(clipped(v) ** 2))(x[0]))
digest.add("types", *(x.astype(kind) * 2 for kind in (jnp.bfloat16, jnp.float16, jnp.int32)))
digest.add("sort", jnp.sort(x, axis=0), jnp.argsort(x[0]), jax.lax.top_k(x[0], 7)[1], jnp.cumsum(x, axis=1))
digest.add("random", jax.random.uniform(keys[2], (100,)), jax.random.permutation(keys[3], 100), jax.random.gamma(keys[2], 2.0, (50,)))
digest.print()
