# needs: packages=jax
# tolerance: 1e-3
"""JAX convolutions (cuDNN), pooling, attention, and their gradients."""
import jax
import jax.numpy as jnp
from jax import lax

from shared.digest import Digest

digest = Digest()
keys = jax.random.split(jax.random.key(3), 4)
image = jax.random.normal(keys[0], (4, 32, 32, 16))
kernel = jax.random.normal(keys[1], (3, 3, 16, 32)) * 0.1


@jax.jit
def network(kernel, image):
    y = lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = jax.nn.relu(y)
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


digest.add("forward", network(kernel, image))
digest.add("gradients", *jax.grad(lambda k, i: jnp.mean(network(k, i) ** 2), argnums=(0, 1))(kernel, image))
digest.add("half", network(kernel.astype(jnp.float16), image.astype(jnp.float16)))
digest.add("strided", lax.conv_general_dilated(image, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
q = jax.random.normal(keys[2], (2, 64, 4, 32))
digest.add("attention", jax.nn.dot_product_attention(q, q, q, is_causal=True))
digest.print()
