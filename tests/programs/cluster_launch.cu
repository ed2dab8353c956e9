// Thread-block clusters (sm_90): ranks and sizes, cluster.sync(), and distributed shared memory, once with the size
// compiled into the kernel and once given as a launch attribute.
#include <cooperative_groups.h>

#include "tests/programs/check.h"

namespace cg = cooperative_groups;
using check::Results;

namespace {

constexpr int kBlocks = 8, kThreads = 64;

void Reference(Results& results) {
  for (int cluster_size : {2, 4}) {
    std::vector<uint32_t> out;
    for (int block = 0; block < kBlocks; ++block)
      for (int i = 0; i < kThreads; ++i) {
        int rank = block % cluster_size, first = block - rank, neighbour = first + (rank + 1) % cluster_size;
        out.push_back(neighbour * 1000 + (kThreads - 1 - i) + rank * 1000000 + cluster_size * 10000000);
      }
    results.Add("neighbours", out);
  }
}

__device__ void ReadNeighbour(uint32_t* out) {
  __shared__ uint32_t values[kThreads];
  cg::cluster_group cluster = cg::this_cluster();
  values[threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
  cluster.sync();
  unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
  const uint32_t* theirs = cluster.map_shared_rank(values, (rank + 1) % size);
  out[blockIdx.x * kThreads + threadIdx.x] = theirs[kThreads - 1 - threadIdx.x] + rank * 1000000 + size * 10000000;
  cluster.sync();  // nobody leaves while its memory is read
}

__global__ void __cluster_dims__(2, 1, 1) CompiledSize(uint32_t* out) { ReadNeighbour(out); }
__global__ void LaunchedSize(uint32_t* out) { ReadNeighbour(out); }

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> out(kBlocks * kThreads);
  CompiledSize<<<kBlocks, kThreads>>>(out.get());
  CHECK_LAUNCH();
  results.Add("neighbours", out.Download());
  out.Zero();
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 4;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK_CUDA(cudaLaunchKernelEx(&config, LaunchedSize, out.get()));
  results.Add("neighbours", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
