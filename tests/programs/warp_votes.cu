// Votes (all, any, ballot), match (any, all), warp reductions (add, min, max, and, or, xor), the active mask and
// __syncwarp, with full and with partial member masks.
#include <algorithm>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kWarps = 16;
constexpr int kForms = 14;

uint32_t Value(int thread) { return (static_cast<uint32_t>(thread) * 2654435761u) >> 27; }  // 0..31, repeats

void Reference(Results& results) {
  std::vector<uint32_t> out;
  for (int warp = 0; warp < kWarps; ++warp) {
    uint32_t values[32];
    for (int lane = 0; lane < 32; ++lane) values[lane] = Value(warp * 32 + lane);
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t ballot = 0, same = 0, sum = 0, low = ~0u, high = 0, conjunction = ~0u, disjunction = 0, parity = 0;
      uint32_t third_sum = 0, third_ballot = 0;
      for (int other = 0; other < 32; ++other) {
        uint32_t v = values[other];
        if (v % 2) ballot |= 1u << other;
        if (v == values[lane]) same |= 1u << other;
        sum += v, low = std::min(low, v), high = std::max(high, v);
        conjunction &= v | 0x40, disjunction |= v, parity ^= v;
        if (other % 3 == lane % 3) {
          third_sum += v;
          if (v > 9) third_ballot |= 1u << other;
        }
      }
      uint32_t all_same = warp % 4 == 0 ? ~0u : 0u;  // match.all of warp % 4 ? value : 5; no warp is uniform by chance
      out.insert(out.end(), {ballot, ballot == ~0u, ballot != 0, same, all_same, sum, low, high, conjunction,
                             disjunction, parity, third_sum, third_ballot, lane < 20 ? 0x000fffffu : 0xfff00000u});
    }
  }
  results.Add("votes", out);
}

__global__ void Vote(uint32_t* out) {
  const unsigned all = 0xffffffffu;
  int thread = blockIdx.x * blockDim.x + threadIdx.x, lane = thread % 32, warp = thread / 32;
  uint32_t value = (static_cast<uint32_t>(thread) * 2654435761u) >> 27;
  uint32_t* mine = out + thread * kForms;
  int predicate;
  mine[0] = __ballot_sync(all, value % 2);
  mine[1] = __all_sync(all, value % 2) != 0;
  mine[2] = __any_sync(all, value % 2) != 0;
  mine[3] = __match_any_sync(all, value);
  mine[4] = __match_all_sync(all, warp % 4 == 0 ? 5u : value, &predicate);
  mine[5] = __reduce_add_sync(all, value);
  mine[6] = __reduce_min_sync(all, value);
  mine[7] = __reduce_max_sync(all, value);
  mine[8] = __reduce_and_sync(all, value | 0x40);
  mine[9] = __reduce_or_sync(all, value);
  mine[10] = __reduce_xor_sync(all, value);
  const unsigned third = lane % 3 == 0 ? 0x49249249u : lane % 3 == 1 ? 0x92492492u : 0x24924924u;
  mine[11] = mine[12] = 0;
  for (int turn = 0; turn < 3; ++turn) {
    if (turn == lane % 3) {
      mine[11] = __reduce_add_sync(third, value);
      mine[12] = __ballot_sync(third, value > 9);
    }
    __syncwarp();
  }
  // Both sides of a branch gather their own members.
  if (lane < 20) {
    mine[13] = __ballot_sync(0x000fffffu, 1);
  } else {
    mine[13] = __ballot_sync(0xfff00000u, 1);
  }
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> out(kWarps * 32 * kForms);
  Vote<<<kWarps / 2, 64>>>(out.get());
  CHECK_LAUNCH();
  results.Add("votes", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
