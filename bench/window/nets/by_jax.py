#!/usr/bin/env python3
"""Branches of small kernels by JAX. XLA_FLAGS of the one who runs it say whether command buffers are used."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# pylint: disable=wrong-import-position
import jax
import jax.numpy as jnp
import numpy

import episode
# pylint: enable=wrong-import-position


@jax.jit
def branches(inputs):
    """Rows, then columns, three times: no two of these are one kernel."""
    outputs = []
    for x in inputs:
        for _ in range(3):
            x = jax.nn.softmax(jnp.tanh(x) * 3, axis=1) + x
            x = x - jnp.mean(x, axis=0, keepdims=True)
        outputs.append(x)
    return outputs


class Branches(episode.Case):
    def __init__(self):
        keys = jax.random.split(jax.random.key(1), 8)
        self.inputs = [jax.random.normal(key, (160 + 32 * number, 256)) for number, key in enumerate(keys)]
        self.out = branches(self.inputs)

    def step(self, number):
        self.out = branches(self.inputs)

    def wait(self):
        jax.block_until_ready(self.out)

    def result(self):
        return b"".join(numpy.asarray(x).tobytes() for x in self.out)


class Simulation(episode.Case):
    """Particles of four sorts in a loop on the device, as brax and MJX have it."""

    def __init__(self):
        keys = jax.random.split(jax.random.key(2), 8)
        self.places = [jax.random.normal(key, (512, 3)) for key in keys[:4]]
        self.speeds = [jax.random.normal(key, (512, 3)) * 0.1 for key in keys[4:]]
        self.out = (self.places, self.speeds)

        @jax.jit
        def run(places, speeds):
            def body(_, state):
                places, speeds = state
                moved, pushed = [], []
                for sort, (place, speed) in enumerate(zip(places, speeds)):
                    apart = place[:, None, :] - places[(sort + 1) % 4][None, :, :]
                    near = jnp.exp(-jnp.sum(apart * apart, axis=2))
                    speed = speed * 0.99 + 1e-3 * jnp.sum(apart * near[:, :, None], axis=1)
                    pushed.append(speed)
                    moved.append(place + 0.01 * speed)
                return moved, pushed
            return jax.lax.fori_loop(0, 16, body, (places, speeds))
        self.run = run

    def step(self, number):
        self.out = self.run(*self.out)

    def reset(self):
        self.out = (self.places, self.speeds)

    def wait(self):
        jax.block_until_ready(self.out)

    def result(self):
        return b"".join(numpy.asarray(x).tobytes() for part in self.out for x in part)


if __name__ == "__main__":
    episode.main({"branches": Branches, "simulation": Simulation})
