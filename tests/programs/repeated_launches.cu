// The same few kernels again and again, each round on the results of the one before: a block that is lost, run twice or
// overtaken anywhere changes everything after it. Beside high-priority work this is what a best-effort program does
// while its kernels are sliced, yield and go on.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr uint32_t kWidth = 150, kHeight = 130, kCells = kWidth * kHeight, kTile = 32, kRounds = 60;
constexpr uint32_t kTiles = (kCells + kTile - 1) / kTile, kBins = 64;

__host__ __device__ uint32_t Mix(uint32_t value) {
  value ^= value >> 16;
  value *= 0x7feb352du;
  value ^= value >> 15;
  return value * 0x846ca68bu;
}

__constant__ uint32_t g_weights[4];
__device__ uint32_t g_bins[kBins];

// Two dimensions, threads outside of the field leave early.
__global__ void AddNeighbours(const uint32_t* from, uint32_t* to) {
  const uint32_t x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= kWidth || y >= kHeight) return;
  const uint32_t left = x == 0 ? kWidth - 1 : x - 1, above = y == 0 ? kHeight - 1 : y - 1;
  to[y * kWidth + x] = Mix(from[y * kWidth + x] + 3 * from[y * kWidth + left] + 5 * from[above * kWidth + x]);
}

// Barriers that threads without a cell do not reach.
__global__ void PrefixInTile(uint32_t* cells) {
  __shared__ uint32_t sums[2][kTile];
  const uint32_t i = blockIdx.x * kTile + threadIdx.x;
  if (i >= kCells) return;
  uint32_t side = 0;
  sums[0][threadIdx.x] = cells[i];
  __syncthreads();
  for (uint32_t step = 1; step < kTile; step *= 2) {
    const uint32_t own = sums[side][threadIdx.x];
    sums[side ^ 1][threadIdx.x] = threadIdx.x >= step ? own + sums[side][threadIdx.x - step] : own;
    side ^= 1;
    __syncthreads();
  }
  cells[i] = sums[side][threadIdx.x];
}

__device__ __noinline__ uint32_t BlockNumber() {
  return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

// Three dimensions, dynamic shared memory, a function that reads the block's index.
__global__ void ReverseTile(uint32_t* cells) {
  extern __shared__ uint32_t tile[];
  const uint32_t block = BlockNumber();
  if (block >= kTiles) return;
  const uint32_t first = block * kTile, size = min(kTile, kCells - first);
  for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) tile[i] = cells[first + i];
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) cells[first + i] = tile[size - 1 - i] + block;
}

// Variables of the module.
__global__ void CountBins(const uint32_t* cells) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kCells; i += gridDim.x * blockDim.x) {
    atomicAdd(&g_bins[cells[i] % kBins], g_weights[i % 4]);
  }
}

std::vector<uint32_t> FirstCells() {
  std::vector<uint32_t> cells(kCells);
  for (uint32_t i = 0; i < kCells; ++i) cells[i] = Mix(i + 1);
  return cells;
}

void Reference(Results& results) {
  std::vector<uint32_t> cells = FirstCells(), next(kCells), bins(kBins);
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t y = 0; y < kHeight; ++y) {
      for (uint32_t x = 0; x < kWidth; ++x) {
        const uint32_t left = x == 0 ? kWidth - 1 : x - 1, above = y == 0 ? kHeight - 1 : y - 1;
        next[y * kWidth + x] =
            Mix(cells[y * kWidth + x] + 3 * cells[y * kWidth + left] + 5 * cells[above * kWidth + x]);
      }
    }
    for (uint32_t tile = 0; tile < kTiles; ++tile) {
      const uint32_t first = tile * kTile, size = std::min(kTile, kCells - first);
      uint32_t sum = 0;
      for (uint32_t i = 0; i < size; ++i) next[first + i] = sum += next[first + i];
      for (uint32_t i = 0; i < size; ++i) cells[first + i] = next[first + size - 1 - i] + tile;
    }
    for (uint32_t i = 0; i < kCells; ++i) bins[cells[i] % kBins] += i % 4 + 1;
  }
  results.Add("cells", cells);
  results.Add("bins", bins);
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> cells(FirstCells()), next(kCells);
  const uint32_t weights[4] = {1, 2, 3, 4};
  CHECK_CUDA(cudaMemcpyToSymbol(g_weights, weights, sizeof(weights)));
  const dim3 field_block(8, 3), field_grid((kWidth + 7) / 8, (kHeight + 2) / 3);
  const dim3 tile_grid(5, 7, (kTiles + 34) / 35);
  for (uint32_t round = 0; round < kRounds; ++round) {
    AddNeighbours<<<field_grid, field_block>>>(cells.get(), next.get());
    PrefixInTile<<<kTiles, kTile>>>(next.get());
    ReverseTile<<<tile_grid, 64, kTile * sizeof(uint32_t)>>>(next.get());
    CountBins<<<50, 64>>>(next.get());
    if (round % 4 == 0) CHECK_CUDA(cudaDeviceSynchronize());  // as a training step ends
    CHECK_CUDA(cudaMemcpyAsync(cells.get(), next.get(), kCells * sizeof(uint32_t), cudaMemcpyDeviceToDevice));
  }
  CHECK_LAUNCH();
  std::vector<uint32_t> bins(kBins);
  CHECK_CUDA(cudaMemcpyFromSymbol(bins.data(), g_bins, kBins * sizeof(uint32_t)));
  results.Add("cells", cells.Download());
  results.Add("bins", bins);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
