// Barriers that only some warps of a block meet: bar.sync with a name and a count for two independent groups, and
// bar.arrive / bar.sync as producer and consumer with double buffering.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kBlocks = 6;
constexpr int kRounds = 12;
constexpr int kGroup = 64;  // threads

// Two groups of two warps each rotate their values by one lane per round, each at its own barrier; group 1 does twice
// as many rounds, so a barrier that were shared between them would not match.
void Reference(Results& results) {
  std::vector<int> rotated;
  for (int block = 0; block < kBlocks; ++block)
    for (int group = 0; group < 2; ++group)
      for (int i = 0; i < kGroup; ++i) {
        int rounds = kRounds * (group + 1);
        rotated.push_back(block * 1000 + group * 100 + (i + rounds) % kGroup);
      }
  results.Add("rotated", rotated);
  std::vector<int> consumed;
  for (int block = 0; block < kBlocks; ++block)
    for (int i = 0; i < 32; ++i) {
      int sum = 0;
      for (int round = 0; round < kRounds; ++round) sum = sum * 31 + (block * 7 + round * 5 + (31 - i));
      consumed.push_back(sum);
    }
  results.Add("consumed", consumed);
}

__device__ void BarrierSync(int name, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
__device__ void BarrierArrive(int name, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

__global__ void Rotate(int* out) {
  __shared__ int values[2 * kGroup];
  int group = threadIdx.x / kGroup, i = threadIdx.x % kGroup;
  int* mine = values + group * kGroup;
  mine[i] = blockIdx.x * 1000 + group * 100 + i;
  for (int round = 0; round < kRounds * (group + 1); ++round) {
    BarrierSync(1 + group, kGroup);
    int next = mine[(i + 1) % kGroup];
    BarrierSync(1 + group, kGroup);
    mine[i] = next;
  }
  out[(blockIdx.x * 2 + group) * kGroup + i] = mine[i];
}

// Warp 0 produces, warp 1 consumes. Barriers 2, 3: buffer full; 4, 5: buffer empty.
__global__ void ProduceConsume(int* out) {
  __shared__ int buffers[2][32];
  int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int round = 0; round < kRounds; ++round) {
      int slot = round % 2;
      if (round >= 2) BarrierSync(4 + slot, 64);
      buffers[slot][lane] = blockIdx.x * 7 + round * 5 + lane;
      BarrierArrive(2 + slot, 64);
    }
  } else {
    int sum = 0;
    for (int round = 0; round < kRounds; ++round) {
      int slot = round % 2;
      BarrierSync(2 + slot, 64);
      sum = sum * 31 + buffers[slot][31 - lane];
      if (round + 2 < kRounds) BarrierArrive(4 + slot, 64);
    }
    out[blockIdx.x * 32 + lane] = sum;
  }
}

void Device(Results& results) {
  check::DeviceBuffer<int> rotated(kBlocks * 2 * kGroup), consumed(kBlocks * 32);
  Rotate<<<kBlocks, 2 * kGroup>>>(rotated.get());
  CHECK_LAUNCH();
  results.Add("rotated", rotated.Download());
  ProduceConsume<<<kBlocks, 64>>>(consumed.get());
  CHECK_LAUNCH();
  results.Add("consumed", consumed.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
