// Kernels for nvcc_test.cc: what real compiled code looks like. Each writes numbers that the test computes again.
#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cstdio>
namespace cg = cooperative_groups;

extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void block_sum(const int* in, int* out, int n) {
  extern __shared__ int sums[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, sums[0]);
}

extern "C" __global__ void warp_sum(const int* in, int* out) {
  int v = in[threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffff, v, offset);
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int w = in[threadIdx.x];
  for (int offset = 4; offset > 0; offset /= 2) w += tile.shfl_xor(w, offset);
  out[threadIdx.x] = w;
  if (threadIdx.x % 32 == 0) out[blockDim.x + threadIdx.x / 32] = v;
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void recurse(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 13); }

struct Pair {
  int a;
  double b;
};
typedef double (*Operation)(double, Pair);
__device__ __noinline__ double plus(double x, Pair p) { return x + p.a; }
__device__ __noinline__ double times(double x, Pair p) { return x * p.b; }
__device__ Operation operations[2] = {plus, times};
__constant__ int factors[4] = {3, 5, 7, 11};
__device__ const int* second_factor = factors + 1;
extern "C" __global__ void indirect(double* out, Pair p) {
  out[threadIdx.x] = operations[threadIdx.x % 2](threadIdx.x, p) + factors[threadIdx.x % 4] + *second_factor;
}

extern "C" __global__ void grid_sync(int* values, int rounds) {
  cg::grid_group grid = cg::this_grid();
  int n = gridDim.x;
  for (int r = 0; r < rounds; ++r) {
    if (threadIdx.x == 0) values[blockIdx.x + ((r + 1) % 2) * n] = values[(blockIdx.x + 1) % n + (r % 2) * n] + 1;
    grid.sync();
  }
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_ring(int* out) {
  __shared__ int mine;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) mine = 100 + blockIdx.x;
  cluster.sync();
  int* neighbour = cluster.map_shared_rank(&mine, (cluster.block_rank() + 1) % cluster.num_blocks());
  if (threadIdx.x == 0) out[blockIdx.x] = *neighbour;
  cluster.sync();
}

__device__ int lock;
extern "C" __global__ void spin_lock(int* counter) {
  for (bool done = false; !done;) {
    if (atomicCAS(&lock, 0, 1) == 0) {
      *(volatile int*)counter = *(volatile int*)counter + 1;
      __threadfence();
      atomicExch(&lock, 0);
      done = true;
    }
  }
}

extern "C" __global__ void greet(int n) {
  printf("thread %d of %s: %5.2f %lld %c%%\n", threadIdx.x, "greet", n * 0.5, 1LL << 40, 'x');
}
extern "C" __global__ void check(int n) { assert(n == 3); }

extern "C" __global__ void halves(const __half2* in, float* out) {
  __half2 v = __hfma2(in[threadIdx.x], __float2half2_rn(2.0f), __float2half2_rn(0.5f));
  out[2 * threadIdx.x] = __low2float(v);
  out[2 * threadIdx.x + 1] = __high2float(v);
}

extern "C" __global__ void mathematics(const double* in, double* out) {
  double x = in[threadIdx.x];
  out[threadIdx.x] = sin(x) + exp(-x) * sqrt(x) + pow(x, 1.5) + (double)sinf((float)x) + log(x + 1) +
                     (double)(long long)(x * 1000) / 7;
}

extern "C" __global__ void many_cases(const int* in, int* out) {
  int x = in[threadIdx.x];
  int r = 0;
  for (int k = 0; k < 10; ++k) {
    switch ((x + k) % 9) {
      case 0:
        r += 3;
        break;
      case 1:
        r ^= x;
        break;
      case 2:
        r = r * 5 + 1;
        break;
      case 3:
        if (r & 1) continue;
        r >>= 1;
        break;
      case 4:
        r -= x * k;
        break;
      case 5:
        r = (r << 3) | (unsigned)r >> 29;
        break;
      case 6:
        r = ~r;
        break;
      case 7:
        if (r > 100000) goto done;
        r += 17;
        break;
      default:
        r = __popc(r) + __clz(x) + r;
        break;
    }
  }
done:
  out[threadIdx.x] = r;
}

extern "C" __global__ void heap_list(int* out, int n) {
  struct Node {
    Node* next;
    int value;
  };
  Node* head = nullptr;
  for (int k = 0; k < n; ++k) {
    Node* node = (Node*)malloc(sizeof(Node));
    node->next = head;
    node->value = k + threadIdx.x;
    head = node;
  }
  int sum = 0;
  while (head) {
    Node* next = head->next;
    sum += head->value;
    free(head);
    head = next;
  }
  out[threadIdx.x] = sum;
}
