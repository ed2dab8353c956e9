// Shuffles of every form: indexed, up, down, butterfly; widths below 32; 64-bit values; partial member masks.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kWarps = 8;
constexpr int kForms = 9;

uint32_t Value(int thread) { return 0x9e3779b9u * static_cast<uint32_t>(thread + 1); }

void Reference(Results& results) {
  std::vector<uint64_t> out;
  for (int warp = 0; warp < kWarps; ++warp) {
    auto value = [warp](int lane) { return Value(warp * 32 + lane); };
    for (int lane = 0; lane < 32; ++lane) {
      int base8 = lane & ~7, base16 = lane & ~15;
      out.push_back(value((lane * 5 + warp) & 31));                    // indexed
      out.push_back(value(base8 + ((lane + 3) & 7)));                  // indexed, width 8
      out.push_back(value(lane < 3 ? lane : lane - 3));                // up
      out.push_back(value((lane & 15) < 4 ? lane : lane - 4));         // up, width 16
      out.push_back(value(lane + 7 > 31 ? lane : lane + 7));           // down
      out.push_back(value(lane + 5 > base16 + 15 ? lane : lane + 5));  // down, width 16
      out.push_back(value(lane ^ 21));                                 // butterfly
      int other = (lane + 1) & 31;
      out.push_back((static_cast<uint64_t>(value(other)) << 32) | static_cast<uint32_t>(other));  // 64 bits
      out.push_back(lane % 2 == 1 ? value((lane & ~2) ^ 0) : 0);                                  // odd lanes only
    }
  }
  results.Add("shuffles", out);
}

__global__ void Shuffle(uint64_t* out) {
  const unsigned all = 0xffffffffu;
  int lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  uint32_t value = 0x9e3779b9u * static_cast<uint32_t>(warp * 32 + lane + 1);
  uint64_t* mine = out + (warp * 32 + lane) * kForms;
  mine[0] = __shfl_sync(all, value, lane * 5 + warp);
  mine[1] = __shfl_sync(all, value, lane + 3, 8);
  mine[2] = __shfl_up_sync(all, value, 3);
  mine[3] = __shfl_up_sync(all, value, 4, 16);
  mine[4] = __shfl_down_sync(all, value, 7);
  mine[5] = __shfl_down_sync(all, value, 5, 16);
  mine[6] = __shfl_xor_sync(all, value, 21);
  unsigned long long pair = (static_cast<unsigned long long>(value) << 32) | static_cast<unsigned>(lane);
  mine[7] = __shfl_sync(all, pair, lane + 1);
  mine[8] = 0;
  if (lane % 2 == 1) mine[8] = __shfl_sync(0xaaaaaaaau, value, lane & ~2);
}

void Device(Results& results) {
  check::DeviceBuffer<uint64_t> out(kWarps * 32 * kForms);
  Shuffle<<<kWarps / 4, 128>>>(out.get());
  CHECK_LAUNCH();
  results.Add("shuffles", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
