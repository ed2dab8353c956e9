// Barriers, shuffles, votes, atomics, fences, cooperative groups, asynchronous copies.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_pipeline.h>

#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;

extern __shared__ int dynamic_shared[];

__global__ void Reduce(const int* in, int* out, int n) {
  __shared__ int partial[32];
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    sum = __reduce_add_sync(0xffffffff, sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

__global__ void Votes(unsigned* out, const int* in) {
  const unsigned active = __activemask();
  unsigned result = __ballot_sync(active, in[threadIdx.x] > 0) ^ __match_any_sync(active, in[threadIdx.x]);
  int all = 0;
  result += __match_all_sync(active, in[threadIdx.x], &all);
  if (__all_sync(active, in[threadIdx.x] < 7)) result += __shfl_xor_sync(active, result, 5);
  result += __syncthreads_count(in[threadIdx.x]) + __syncthreads_or(in[threadIdx.x]) + __syncthreads_and(all);
  out[threadIdx.x] = result;
}

__global__ void Atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d, cuda::atomic<int>* a) {
  atomicMax(i, 3);
  atomicCAS(u, 1u, 2u);
  atomicExch(l, 5ull);
  atomicAdd(f, 1.5f);
  atomicAdd(d, 2.5);
  atomicInc(u, 100u);
  atomicAnd_block(u, 7u);
  atomicOr_system(u, 8u);
  __threadfence();
  __threadfence_system();
  __threadfence_block();
  a->fetch_add(1, cuda::memory_order_acq_rel);
  a->store(4, cuda::memory_order_release);
  a->wait(3);
}

__global__ void Groups(int* out) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
  int sum = cg::reduce(tile, static_cast<int>(threadIdx.x), cg::plus<int>());
  cg::coalesced_group active = cg::coalesced_threads();
  sum += active.size() + active.thread_rank();
  grid.sync();
  dynamic_shared[threadIdx.x] = sum;
  block.sync();
  out[grid.thread_rank()] = dynamic_shared[threadIdx.x ^ 1];
}

__global__ void AsynchronousCopy(const float4* in, float4* out) {
  __shared__ float4 staged[128];
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  cg::thread_block block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&barrier, block.size());
  block.sync();
  cuda::memcpy_async(block, staged, in + blockIdx.x * 128, sizeof(staged), barrier);
  barrier.arrive_and_wait();
  __pipeline_memcpy_async(&staged[threadIdx.x], &in[threadIdx.x], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = staged[threadIdx.x];
  __nanosleep(100);
}

__global__ void __cluster_dims__(2, 1, 1) Clusters(int* out) {
  __shared__ int value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = cluster.block_rank();
  cluster.sync();
  out[blockIdx.x] = *cluster.map_shared_rank(&value, cluster.block_rank() ^ 1);
  cluster.sync();
}
