# needs: packages=jax,flax,optax
# tolerance: 1e-3
"""Flax and Optax: a small convolutional network trained under jit, with batch statistics and donated buffers."""
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from shared.digest import Digest


class Network(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(16, (3, 3))(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


digest = Digest()
keys = jax.random.split(jax.random.key(6), 2)
images = jax.random.normal(keys[0], (16, 16, 16, 3))
labels = jnp.arange(16) % 10
network = Network()
variables = network.init(keys[1], images, True)
parameters, statistics = variables["params"], variables["batch_stats"]
optimizer = optax.adamw(1e-3)
state = optimizer.init(parameters)


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def step(parameters, statistics, state):
    def loss(parameters):
        logits, updates = network.apply({"params": parameters, "batch_stats": statistics}, images, True, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updates["batch_stats"]

    (value, new_statistics), gradients = jax.value_and_grad(loss, has_aux=True)(parameters)
    updates, new_state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), new_statistics, new_state, value


for index in range(6):
    parameters, statistics, state, value = step(parameters, statistics, state)
    digest.add(f"loss {index}", value)
digest.add("weights", *jax.tree.leaves(parameters))
digest.print()
