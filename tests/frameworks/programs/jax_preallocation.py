# needs: packages=jax
"""JAX with its allocators: memory taken in advance, and the driver's asynchronous allocator; each in a child process."""
from shared import child_process
from shared.digest import Digest


def child(_):
    import jax
    import jax.numpy as jnp

    x = jnp.arange(1_000_000, dtype=jnp.float32)
    for _ in range(5):
        x = jnp.roll(x, 3) * 1.5 + 1
        x = x / jnp.max(x)
    print(jax.default_backend(), x.sum(), flush=True)


def main():
    digest = Digest()
    for name, settings in {"in advance": {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".05"},
                           "asynchronous": {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"},
                           "as needed": {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}}.items():
        run = child_process.run(name, **settings)
        digest.add(name, run.returncode, run.stdout)
        assert run.returncode == 0
    digest.print()


if __name__ == "__main__":
    child_process.start(main, child)
