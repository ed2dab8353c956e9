// Kernels to be gated, each with something about it that gating could get wrong.
#include <cstdio>

struct Large {
  char bytes[4000];
};
struct Huge {
  char bytes[8000];
};
struct Odd {
  char bytes[13];
};

extern "C" __global__ void Plain(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = out[i] * 3 + i;
}

extern "C" __global__ void NoParameters() {}

extern "C" __global__ void ncclDevKernel_Pretended(int* out) { out[0] = 1; }

extern "C" __global__ void OddParameters(char* out, Odd odd, char last) { out[threadIdx.x] = odd.bytes[5] + last; }

extern "C" __global__ void LargeParameters(const __grid_constant__ Large large, char* out) {
  out[0] = large.bytes[threadIdx.x];
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
extern "C" __global__ void HugeParameters(const __grid_constant__ Huge huge, char* out) {
  out[0] = huge.bytes[threadIdx.x];
}
#endif

__device__ int counters[8] = {4, 5};
extern "C" __global__ void NamesAVariable(int* out) { out[0] = counters[threadIdx.x]; }

__device__ __noinline__ float Halve(float x, int depth) { return depth <= 0 ? x : Halve(x * 0.5f + depth, depth - 1); }
__device__ __noinline__ float Other(float x, int depth) { return x - depth; }
using Function = float (*)(float, int);
__device__ Function functions[2] = {Halve, Other};

extern "C" __global__ void Calls(float* out) { out[threadIdx.x] = Halve(out[threadIdx.x], threadIdx.x & 7); }
extern "C" __global__ void CallsByAddress(float* out) { out[threadIdx.x] = functions[threadIdx.x & 1](out[0], 3); }

extern "C" __global__ void Switches(float* out) {
  float v = out[threadIdx.x];
  switch (static_cast<int>(v) & 15) {
    case 0:
      v = v * 3;
      break;
    case 1:
      v = v + 77;
      break;
    case 2:
      v = sqrtf(v);
      break;
    case 3:
      v = fmodf(v, 7.f);
      break;
    case 4:
      v = __int_as_float(__float_as_int(v) ^ 123);
      break;
    case 5:
      v = __popc(static_cast<int>(v));
      break;
    case 6:
      v = v * v;
      break;
    case 7:
      v = __clz(static_cast<int>(v));
      break;
    case 8:
      v = 1 / v;
      break;
    case 9:
      v = logf(v);
      break;
    default:
      v = -1;
  }
  out[threadIdx.x] = v;
}

extern "C" __global__ void Prints() { printf("block %d\n", blockIdx.x); }

extern "C" __global__ void __launch_bounds__(256, 2) Synchronises(float* out) {
  __shared__ float shared[256];
  shared[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 128) asm volatile("bar.sync 1, 128;");
  const unsigned ballot = __ballot_sync(~0u, shared[255 - threadIdx.x] > 0);
  out[threadIdx.x] = __shfl_xor_sync(~0u, shared[255 - threadIdx.x], 3) + ballot;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) Clustered(int* out) { out[0] = 3; }
#endif
