// Threads that leave a kernel while others of their warp go on with operations that name all 32 lanes: behind a bound
// that is no multiple of the warp, one after another, and in turns with barriers. Only values of lanes that are there
// are used.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr uint32_t kBlocks = 24;
constexpr uint32_t kThreads = 96;
constexpr uint32_t kAll = 0xffffffffu;
constexpr uint32_t kForms = 4;

__host__ __device__ uint32_t Value(uint32_t block, uint32_t thread) {
  return (block * 977 + thread) * 2654435761u >> 24;
}
// So many threads of a block stay.
__host__ __device__ uint32_t Bound(uint32_t block) { return 1 + block * 37 % kThreads; }

void Reference(Results& results) {
  std::vector<uint32_t> tails(kBlocks * kThreads * kForms, 0);
  std::vector<uint32_t> rounds(kBlocks * kThreads, 0);
  std::vector<uint32_t> turns(kBlocks * kThreads, 0);
  for (uint32_t block = 0; block < kBlocks; ++block) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      const uint32_t first = thread / 32 * 32;
      uint32_t sum = 0, odd = 0, same = 0;
      for (uint32_t other = first; other < first + 32 && other < Bound(block); ++other) {
        sum += Value(block, other);
        odd |= (Value(block, other) & 1) << (other - first);
        if (Value(block, other) % 4 == Value(block, thread) % 4) same |= 1u << (other - first);
      }
      uint32_t* mine = &tails[(block * kThreads + thread) * kForms];
      if (thread < Bound(block)) mine[0] = thread == first ? sum : 0, mine[1] = odd, mine[2] = same, mine[3] = sum;
      // A lane stays for Value % 7 rounds; in each it sees how many others do.
      const uint32_t mine_stays = Value(block, thread) % 7;
      for (uint32_t round = 0; round < mine_stays; ++round)
        for (uint32_t other = first; other < first + 32; ++other)
          if (Value(block, other) % 7 > round) rounds[block * kThreads + thread] += round + 1;
      if (thread >= Bound(block)) continue;
      // Then those with a third of the values leave, and of the rest the least is found.
      uint32_t& turn = turns[block * kThreads + thread] = 1;
      if (Value(block, thread) % 3 == 0) continue;
      turn = ~0u;
      for (uint32_t other = first; other < first + 32 && other < Bound(block); ++other)
        if (Value(block, other) % 3 != 0 && Value(block, other) < turn) turn = Value(block, other);
    }
  }
  results.Add("behind a bound", tails);
  results.Add("one after another", rounds);
  results.Add("in turns with barriers", turns);
}

__global__ void BehindABound(uint32_t* out) {
  const uint32_t bound = Bound(blockIdx.x);
  if (threadIdx.x >= bound) return;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t value = Value(blockIdx.x, threadIdx.x);
  uint32_t* mine = out + (blockIdx.x * blockDim.x + threadIdx.x) * kForms;
  uint32_t sum = value;
  for (uint32_t distance = 16; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_down_sync(kAll, sum, distance);
    if (lane + distance < 32 && threadIdx.x + distance < bound) sum += other;
    __syncwarp();
  }
  mine[0] = lane == 0 ? sum : 0;
  mine[1] = __ballot_sync(kAll, value & 1);
  mine[2] = __match_any_sync(kAll, value % 4);
  mine[3] = __reduce_add_sync(kAll, value);
}

__global__ void OneAfterAnother(uint32_t* out) {
  const uint32_t stays = Value(blockIdx.x, threadIdx.x) % 7;
  uint32_t seen = 0;
#pragma unroll 1  // else nvcc lets lanes of one warp vote at two places
  for (uint32_t round = 0; round < stays; ++round) seen += __popc(__ballot_sync(kAll, 1)) * (round + 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = seen;
}

__global__ void InTurnsWithBarriers(uint32_t* out) {
  __shared__ uint32_t values[kThreads];
  uint32_t* mine = out + blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x >= Bound(blockIdx.x)) return;
  values[Bound(blockIdx.x) - 1 - threadIdx.x] = Value(blockIdx.x, Bound(blockIdx.x) - 1 - threadIdx.x);
  *mine = 1;
  __syncthreads();
  const uint32_t value = values[threadIdx.x];
  if (value % 3 == 0) return;
  const uint32_t least = __reduce_min_sync(kAll, value);
  __syncthreads();
  *mine = least;
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> tails(std::vector<uint32_t>(kBlocks * kThreads * kForms, 0));
  check::DeviceBuffer<uint32_t> rounds(kBlocks * kThreads);
  check::DeviceBuffer<uint32_t> turns(std::vector<uint32_t>(kBlocks * kThreads, 0));
  BehindABound<<<kBlocks, kThreads>>>(tails.get());
  CHECK_LAUNCH();
  OneAfterAnother<<<kBlocks, kThreads>>>(rounds.get());
  CHECK_LAUNCH();
  InTurnsWithBarriers<<<kBlocks, kThreads>>>(turns.get());
  CHECK_LAUNCH();
  results.Add("behind a bound", tails.Download());
  results.Add("one after another", rounds.Download());
  results.Add("in turns with barriers", turns.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
