// Special registers, by what must hold of them: clocks and the global timer advance, lane, warp and multiprocessor
// numbers are in range, lane masks have their bits, each block stays on one multiprocessor.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kBlocks = 12, kThreads = 96;

void Reference(Results& results) { results.Add("held", std::vector<uint32_t>(kBlocks * kThreads, 0x1ff)); }

template <class T>
__device__ uint32_t Bit(int position, T condition) {
  return static_cast<uint32_t>(condition ? 1 : 0) << position;
}

#define REGISTER32(name, variable) asm volatile("mov.u32 %0, %%" name ";" : "=r"(variable))
#define REGISTER64(name, variable) asm volatile("mov.u64 %0, %%" name ";" : "=l"(variable))

__global__ void Look(uint32_t* held) {
  __shared__ uint32_t first_multiprocessor;
  uint32_t lane, warp, num_warps, multiprocessor, num_multiprocessors, below, upto, equal, above;
  uint64_t clock_before, clock_after, time_before, time_after;
  REGISTER64("clock64", clock_before);
  REGISTER64("globaltimer", time_before);
  REGISTER32("laneid", lane);
  REGISTER32("warpid", warp);
  REGISTER32("nwarpid", num_warps);
  REGISTER32("smid", multiprocessor);
  REGISTER32("nsmid", num_multiprocessors);
  REGISTER32("lanemask_lt", below);
  REGISTER32("lanemask_le", upto);
  REGISTER32("lanemask_eq", equal);
  REGISTER32("lanemask_gt", above);
  if (threadIdx.x == 0) first_multiprocessor = multiprocessor;
  __syncthreads();
  for (int i = 0; i < 20; ++i) __nanosleep(200000);
  REGISTER64("clock64", clock_after);
  REGISTER64("globaltimer", time_after);
  held[blockIdx.x * kThreads + threadIdx.x] =
      Bit(0, clock_after > clock_before) | Bit(1, time_after > time_before) | Bit(2, lane == threadIdx.x % 32) |
      Bit(3, warp < num_warps) | Bit(4, multiprocessor < num_multiprocessors) | Bit(5, equal == 1u << lane) |
      Bit(6, (below | equal) == upto && (below & equal) == 0) | Bit(7, (upto ^ above) == 0xffffffffu) |
      Bit(8, multiprocessor == first_multiprocessor);
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> held(kBlocks * kThreads);
  Look<<<kBlocks, kThreads>>>(held.get());
  CHECK_LAUNCH();
  results.Add("held", held.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
