# needs: packages=cuda.bindings,numpy
"""cuda-python: the runtime API: devices, memory of all kinds, pitched copies, pools, streams."""
import numpy
from cuda.bindings import runtime

from shared.digest import Digest


def check(result):
    error, *values = result
    assert error.value == 0, (error, values)
    return values[0] if len(values) == 1 else values or None


digest = Digest()
properties = check(runtime.cudaGetDeviceProperties(0))
digest.add("device", properties.name, properties.major, properties.minor, properties.multiProcessorCount, properties.warpSize)
x = numpy.random.default_rng(10).standard_normal(50_000).astype(numpy.float32)
y = numpy.zeros_like(x)
kinds = runtime.cudaMemcpyKind
address = check(runtime.cudaMalloc(x.nbytes))
check(runtime.cudaMemcpy(address, x.ctypes.data, x.nbytes, kinds.cudaMemcpyHostToDevice))
check(runtime.cudaMemcpy(y.ctypes.data, address, x.nbytes, kinds.cudaMemcpyDeviceToHost))
digest.add("round trip", y)
check(runtime.cudaMemset(address, 0x3F, 4000))
check(runtime.cudaMemcpy(y.ctypes.data, address, x.nbytes, kinds.cudaMemcpyDefault))
digest.add("memset", y)
check(runtime.cudaFree(address))
matrix = numpy.arange(40 * 30, dtype=numpy.float32).reshape(40, 30)
pitched, pitch = check(runtime.cudaMallocPitch(30 * 4, 40))
check(runtime.cudaMemcpy2D(pitched, pitch, matrix.ctypes.data, 30 * 4, 30 * 4, 40, kinds.cudaMemcpyHostToDevice))
back = numpy.zeros_like(matrix)
check(runtime.cudaMemcpy2D(back.ctypes.data, 30 * 4, pitched, pitch, 30 * 4, 40, kinds.cudaMemcpyDeviceToHost))
digest.add("pitched", back, pitch)
stream = check(runtime.cudaStreamCreate())
pooled = check(runtime.cudaMallocAsync(x.nbytes, stream))
check(runtime.cudaMemcpyAsync(pooled, x.ctypes.data, x.nbytes, kinds.cudaMemcpyHostToDevice, stream))
check(runtime.cudaMemcpyAsync(y.ctypes.data, pooled, x.nbytes, kinds.cudaMemcpyDeviceToHost, stream))
check(runtime.cudaFreeAsync(pooled, stream))
check(runtime.cudaStreamSynchronize(stream))
digest.add("pool", y)
host = check(runtime.cudaHostAlloc(4096, runtime.cudaHostAllocMapped))
digest.add("mapped", int(check(runtime.cudaHostGetDevicePointer(host, 0))) != 0)
attributes = check(runtime.cudaPointerGetAttributes(host))
digest.add("attributes", attributes.type.name, attributes.device)
registered = numpy.zeros(1 << 16, dtype=numpy.uint8)
check(runtime.cudaHostRegister(registered.ctypes.data, registered.nbytes, 0))
check(runtime.cudaMemcpyAsync(registered.ctypes.data, pitched, 120, kinds.cudaMemcpyDeviceToHost, stream))
check(runtime.cudaStreamSynchronize(stream))
check(runtime.cudaHostUnregister(registered.ctypes.data))
digest.add("registered", registered[:120])
check(runtime.cudaFreeHost(host))
check(runtime.cudaDeviceSynchronize())
digest.print()
