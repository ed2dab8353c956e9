# needs: packages=cuda.core,cupy
"""cuda.core: Device, Program, launch, buffers, events; templates instantiated by name."""
import cupy
import numpy

try:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
except ImportError:
    from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch

from shared.digest import Digest

SOURCE = """
template <typename T> __global__ void add(const T* a, const T* b, T* c, size_t n) {
  for (size_t i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}
"""
digest = Digest()
device = Device()
device.set_current()
stream = device.create_stream()
architecture = "".join(str(part) for part in device.compute_capability)
program = Program(SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch=f"sm_{architecture}"))
module = program.compile("cubin", name_expressions=("add<float>", "add<double>"))
generator = cupy.random.default_rng(11)
for name, dtype in (("add<float>", cupy.float32), ("add<double>", cupy.float64)):
    a, b = (generator.standard_normal(50_000).astype(dtype) for _ in range(2))
    c = cupy.empty_like(a)
    cupy.cuda.Device().synchronize()
    launch(stream, LaunchConfig(grid=128, block=256), module.get_kernel(name), a.data.ptr, b.data.ptr, c.data.ptr, numpy.uint64(c.size))
    stream.sync()
    digest.add(name, c)
    assert cupy.allclose(c, a + b)
buffer = device.allocate(1 << 20, stream=stream)
digest.add("buffer", buffer.size)
event = stream.record()
event.sync()
digest.add("event", event.is_done)
buffer.close(stream)
digest.print()
