# needs: packages=jax gpus=2
"""JAX over two GPUs: pmap with collectives, sharded arrays under jit, shard_map."""
import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shared.digest import Digest

digest = Digest()
devices = jax.devices()[:2]
assert len(devices) == 2, devices
x = jax.random.normal(jax.random.key(4), (2, 128, 64))
digest.add("pmap", jax.pmap(lambda v: jax.lax.psum(jnp.sin(v), "i"), axis_name="i", devices=devices)(x))
digest.add("pmap mean", jax.pmap(lambda v: v - jax.lax.pmean(v, "i"), axis_name="i", devices=devices)(x))
mesh = Mesh(numpy.array(devices), ("rows",))
sharded = jax.device_put(x.reshape(256, 64), NamedSharding(mesh, PartitionSpec("rows", None)))
weights = jax.device_put(jax.random.normal(jax.random.key(5), (64, 32)), NamedSharding(mesh, PartitionSpec()))
digest.add("sharded product", jax.jit(lambda a, b: jnp.tanh(a @ b))(sharded, weights))
digest.add("sharded gradient", jax.jit(jax.grad(lambda b, a: jnp.mean((a @ b) ** 2)))(weights, sharded))
digest.add("all-reduce", jax.jit(lambda a: a.sum(axis=0))(sharded))
moved = jax.device_put(x[0], devices[1])
digest.add("moved", moved, list(moved.devices())[0].id)
digest.print()
