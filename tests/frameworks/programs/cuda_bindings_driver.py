# needs: packages=cuda.bindings,numpy
"""cuda-python: the driver API by hand, with NVRTC: compile, load, launch, streams, events, a graph, occupancy."""
import ctypes

import numpy
from cuda.bindings import driver, nvrtc

from shared.digest import Digest

SOURCE = rb"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
__constant__ float offset;
extern "C" __global__ void add_offset(float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += offset;
}
"""


def check(result):
    """Raises if the call failed; gives what it returned."""
    error, *values = result
    assert error.value == 0, (error, values)
    return values[0] if len(values) == 1 else values or None


digest = Digest()
check(driver.cuInit(0))
device = check(driver.cuDeviceGet(0))
context = check(driver.cuDevicePrimaryCtxRetain(device))
check(driver.cuCtxSetCurrent(context))
major = check(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
minor = check(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
digest.add("device", check(driver.cuDeviceGetName(100, device)).split(b"\0")[0], major, minor, check(driver.cuDriverGetVersion()))
program = check(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
options = [b"--fmad=false", b"--gpu-architecture=sm_%d%d" % (major, minor)]
check(nvrtc.nvrtcCompileProgram(program, len(options), options))
image = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
check(nvrtc.nvrtcGetCUBIN(program, image))
holder = numpy.frombuffer(image, dtype=numpy.uint8)
module = check(driver.cuModuleLoadData(holder.ctypes.data))
saxpy = check(driver.cuModuleGetFunction(module, b"saxpy"))
add_offset = check(driver.cuModuleGetFunction(module, b"add_offset"))
n = 100_000
x = numpy.random.default_rng(9).standard_normal(n).astype(numpy.float32)
y = numpy.ones(n, dtype=numpy.float32)
stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
on_device = [check(driver.cuMemAlloc(x.nbytes)) for _ in range(2)]
for address, array in zip(on_device, (x, y)):
    check(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, stream))
offset, size = check(driver.cuModuleGetGlobal(module, b"offset"))
constant = numpy.array([0.5], dtype=numpy.float32)
check(driver.cuMemcpyHtoDAsync(offset, constant.ctypes.data, 4, stream))
start, end = (check(driver.cuEventCreate(0)) for _ in range(2))
check(driver.cuEventRecord(start, stream))
arguments = ((2.0, int(on_device[0]), int(on_device[1]), n), (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint))
check(driver.cuLaunchKernel(saxpy, (n + 255) // 256, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
check(driver.cuEventRecord(end, stream))
check(driver.cuMemcpyDtoHAsync(y.ctypes.data, on_device[1], y.nbytes, stream))
check(driver.cuStreamSynchronize(stream))
digest.add("saxpy", y, size, check(driver.cuEventElapsedTime(start, end)) > 0)
assert numpy.array_equal(y, 2 * x + 1)
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
more = ((int(on_device[1]), n), (ctypes.c_void_p, ctypes.c_uint))
for _ in range(3):
    check(driver.cuLaunchKernel(add_offset, (n + 255) // 256, 1, 1, 256, 1, 1, 0, stream, more, 0))
graph = check(driver.cuStreamEndCapture(stream))
executable = check(driver.cuGraphInstantiate(graph, 0))
for _ in range(4):
    check(driver.cuGraphLaunch(executable, stream))
check(driver.cuMemcpyDtoHAsync(y.ctypes.data, on_device[1], y.nbytes, stream))
check(driver.cuStreamSynchronize(stream))
digest.add("graph", y)
digest.add("occupancy", check(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(saxpy, 256, 0)))
digest.add("an error by name", driver.cuMemFree(12345)[0].name, check(driver.cuGetErrorName(driver.CUresult.CUDA_ERROR_INVALID_VALUE)))
for address in on_device:
    check(driver.cuMemFree(address))
check(driver.cuModuleUnload(module))
check(driver.cuDevicePrimaryCtxRelease(device))
digest.print()
