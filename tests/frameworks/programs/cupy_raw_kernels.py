# needs: packages=cupy
# domain: own
"""CuPy: RawKernel, RawModule with templates, constant and dynamic shared memory, cooperative groups, and device printf."""
import cupy

from shared import child_process
from shared.digest import Digest

SOURCE = r"""
#include <cooperative_groups.h>
__constant__ float factors[4];

template <typename T> __global__ void scale(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * static_cast<T>(factors[i % 4]);
}

extern "C" __global__ void reverse(const float* x, float* y) {
  extern __shared__ float block[];
  block[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * blockDim.x + threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void sum_of_warps(const float* x, float* y) {
  auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  float value = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) value += warp.shfl_down(value, offset);
  if (warp.thread_rank() == 0) y[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = value;
}

extern "C" __global__ void hello(int n) { if (threadIdx.x == 0) printf("block %d of %d\n", (int)blockIdx.x, n); }
"""


def child(_):
    hello = cupy.RawKernel(SOURCE[SOURCE.index('extern "C" __global__ void hello'):], "hello")
    hello((5,), (32,), (5,))
    cupy.cuda.Device().synchronize()


def main():
    digest = Digest()
    module = cupy.RawModule(code=SOURCE, options=("--std=c++17",), name_expressions=("scale<float>", "scale<double>"))
    factors = cupy.ndarray((4,), cupy.float32, module.get_global("factors"))
    factors[...] = cupy.array([1.5, -2, 0.25, 3], dtype=cupy.float32)
    x = cupy.random.default_rng(2).standard_normal(10_000)
    for name, dtype in (("scale<float>", cupy.float32), ("scale<double>", cupy.float64)):
        y = cupy.empty(10_000, dtype)
        module.get_function(name)((40,), (256,), (x.astype(dtype), y, 10_000))
        digest.add(name, y)
    x = x[:8192].astype(cupy.float32)
    y = cupy.empty_like(x)
    reverse = module.get_function("reverse")
    reverse.max_dynamic_shared_size_bytes = 100_000
    reverse((32,), (256,), (x, y), shared_mem=90_000)
    digest.add("dynamic shared memory", y, reverse.num_regs > 0)
    sums = cupy.empty(256, cupy.float32)
    module.get_function("sum_of_warps")((32,), (256,), (x, sums))
    digest.add("warps", sums)
    run = child_process.run("printf")
    digest.add("printf", run.returncode, b"\n".join(sorted(run.stdout.split(b"\n"))))
    assert run.stdout.count(b"block") == 5, run.stdout
    digest.print()


if __name__ == "__main__":
    child_process.start(main, child)
