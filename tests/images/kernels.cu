// Kernels whose images the tests of images/ read: each shows one thing that a cubin records.
#include <cstdio>

struct Two {
  char bytes[200];
};
struct alignas(64) Aligned {
  char bytes[64];
};
struct Huge {
  char bytes[8000];
};

extern "C" __global__ void __launch_bounds__(128, 2) Bounded(int* out, float f, char c, Two two) {
  __shared__ int table[33];
  table[threadIdx.x] = out[0];
  __syncthreads();
  out[1] = table[3] + static_cast<int>(f) + c + two.bytes[7];
}

extern "C" __global__ void Prints() { printf("value %d\n", 3); }

extern "C" __global__ void AlignedParameter(const __grid_constant__ Aligned aligned, long long* out) {
  out[0] = aligned.bytes[threadIdx.x];
}

extern "C" __global__ void HugeParameter(Huge huge, int* out) { out[0] = huge.bytes[threadIdx.x]; }

#ifdef TALLY_VARIABLES
__device__ int counters[8] = {4, 5};
extern "C" __global__ void NamesAVariable(int* out) { out[0] = counters[threadIdx.x]; }

__device__ __noinline__ int Twice(int x) { return x * 2 + clock(); }
extern "C" __global__ void CallsAFunction(int* out) { out[0] = Twice(out[1]); }

extern "C" __global__ void SharesWhatTheLaunchGives(int* out) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared[31 - threadIdx.x];
}
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) Clustered(int* out) { out[0] = 3; }
#endif
