# needs: packages=numba,numba_cuda
"""numba-cuda: kernels with shared memory, atomics, reductions, ufuncs, streams, pinned and mapped arrays."""
import math

import numpy

for removed, name in {"row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid"}.items():
    if not hasattr(numpy, removed):  # gone from numpy 2.5, which numba 0.6x still names when it compiles
        setattr(numpy, removed, getattr(numpy, name))
from numba import cuda, float32, vectorize

from shared.digest import Digest


@cuda.jit
def saxpy(a, x, y, result):
    i = cuda.grid(1)
    if i < result.size:
        result[i] = a * x[i] + math.sin(y[i])


@cuda.jit
def block_sums(x, sums):
    shared = cuda.shared.array(256, float32)
    i = cuda.grid(1)
    shared[cuda.threadIdx.x] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    width = 128
    while width > 0:
        if cuda.threadIdx.x < width:
            shared[cuda.threadIdx.x] += shared[cuda.threadIdx.x + width]
        cuda.syncthreads()
        width //= 2
    if cuda.threadIdx.x == 0:
        sums[cuda.blockIdx.x] = shared[0]


@cuda.jit
def histogram(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i], 1)


@vectorize(["float32(float32, float32)"], target="cuda")
def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


digest = Digest()
generator = numpy.random.default_rng(8)
x = generator.standard_normal(10_000).astype(numpy.float32)
y = generator.standard_normal(10_000).astype(numpy.float32)
result = cuda.device_array_like(x)
saxpy[40, 256](numpy.float32(2.5), cuda.to_device(x), cuda.to_device(y), result)
digest.add("saxpy", result.copy_to_host())
sums = cuda.device_array(40, dtype=numpy.float32)
block_sums[40, 256](cuda.to_device(x), sums)
digest.add("shared memory", sums.copy_to_host())
counts = cuda.to_device(numpy.zeros(16, dtype=numpy.int32))
histogram[40, 256](cuda.to_device(generator.integers(0, 16, 10_000)), counts)
digest.add("atomics", counts.copy_to_host())
digest.add("ufunc", hypotenuse(x, y))
total = cuda.reduce(lambda a, b: a + b)
digest.add("reduce", float(total(cuda.to_device(numpy.arange(1000, dtype=numpy.float64)))))
stream = cuda.stream()
pinned = cuda.pinned_array(1000, dtype=numpy.float32)
pinned[:] = 3
there = cuda.to_device(pinned, stream=stream)
saxpy[4, 256, stream](numpy.float32(2), there, there, there)
there.copy_to_host(pinned, stream=stream)
stream.synchronize()
digest.add("stream", pinned)
mapped = cuda.mapped_array(1000, dtype=numpy.float32)
mapped[:] = 1
saxpy[4, 256](numpy.float32(4), mapped, mapped, mapped)
cuda.synchronize()
digest.add("mapped", numpy.array(mapped))
digest.print()
