# needs: packages=cupy
"""CuPy: its memory pools, managed memory, the asynchronous allocator, pinned memory, allocation by hand."""
import cupy
import cupyx
import numpy

from shared.digest import Digest

digest = Digest()
pool = cupy.get_default_memory_pool()
x = cupy.arange(1_000_000, dtype=cupy.float32)
digest.add("default pool", x.sum(), pool.used_bytes(), pool.total_bytes())
del x
pool.free_all_blocks()
digest.add("emptied", pool.total_bytes())
with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
    y = cupy.random.default_rng(1).standard_normal(100_000)
    digest.add("asynchronous pool", cupy.sort(y))
    del y
with cupy.cuda.using_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc):
    z = cupy.arange(100_000, dtype=cupy.float64) * 2
    digest.add("managed pool", z, z.sum())
    host = numpy.ctypeslib.as_array((numpy.ctypeslib.ctypes.c_double * 100_000).from_address(z.data.ptr))
    cupy.cuda.Device().synchronize()
    digest.add("managed, read by the host", host[::1000].copy())
    host[:] += 1
    digest.add("managed, written by the host", cupy.sqrt(z))
    del host, z
pinned = cupyx.empty_pinned(10_000, dtype=numpy.float32)
pinned[:] = numpy.arange(10_000)
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    on_device = cupy.empty(10_000, dtype=cupy.float32)
    on_device.set(pinned, stream=stream)
    on_device *= 2
    on_device.get(stream=stream, out=pinned)
stream.synchronize()
digest.add("pinned", pinned)
raw = cupy.cuda.alloc(4000)
raw.memset(0x41, 4000)
digest.add("by hand", cupy.ndarray((1000,), cupy.int32, raw))
free, total = cupy.cuda.runtime.memGetInfo()
digest.add("free is less than total", 0 < free < total)
digest.print()
