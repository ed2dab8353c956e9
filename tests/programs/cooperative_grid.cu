// A cooperative launch: all blocks meet at grid.sync() between steps of a computation in which each block reads what
// another wrote. Also: a grid that cannot be resident at once is refused with its own error code.
#include <cooperative_groups.h>

#include "tests/programs/check.h"

namespace cg = cooperative_groups;
using check::Results;

namespace {

constexpr int kBlocks = 4, kThreads = 128, kCount = kBlocks * kThreads, kSteps = 6;

void Reference(Results& results) {
  std::vector<uint32_t> now(kCount), next(kCount);
  for (uint32_t i = 0; i < kCount; ++i) now[i] = i * 2654435761u;
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kCount; ++i) next[i] = now[(i + kThreads) % kCount] * 3 + now[kCount - 1 - i] + step;
    now.swap(next);
  }
  results.Add("steps", now);
  results.AddValue<int>("too many blocks", cudaErrorCooperativeLaunchTooLarge);
}

__global__ void Steps(uint32_t* now, uint32_t* next) {
  cg::grid_group grid = cg::this_grid();
  uint32_t i = static_cast<uint32_t>(grid.thread_rank());
  now[i] = i * 2654435761u;
  grid.sync();
  for (int step = 0; step < kSteps; ++step) {
    next[i] = now[(i + kThreads) % kCount] * 3 + now[kCount - 1 - i] + step;
    grid.sync();
    uint32_t* swap = now;
    now = next;
    next = swap;
  }
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> now(kCount), next(kCount);
  uint32_t *now_pointer = now.get(), *next_pointer = next.get();
  void* arguments[] = {&now_pointer, &next_pointer};
  CHECK_CUDA(cudaLaunchCooperativeKernel(Steps, dim3(kBlocks), dim3(kThreads), arguments, 0, nullptr));
  results.Add("steps", kSteps % 2 == 0 ? now.Download() : next.Download());
  results.AddValue<int>("too many blocks",
                        cudaLaunchCooperativeKernel(Steps, dim3(1 << 20), dim3(kThreads), arguments, 0, nullptr));
  cudaGetLastError();
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
