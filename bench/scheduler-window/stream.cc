#include "bench/scheduler-window/stream.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace tally::scheduler_window {
namespace {

using scheduler::Access;
using scheduler::AccessKind;
using scheduler::Box;

constexpr uint64_t kBase = uint64_t{0x7f} << 40;
constexpr uint64_t kResultBytes = 64 << 10;
constexpr uint64_t kPitch = 4 << 20;  // of the matrix
constexpr uint64_t kTileRows = 64;

Box BoxOf(uint32_t result, uint32_t step, Memory memory) {
  switch (memory) {
    case Memory::kRanges:
      break;
    case Memory::kTiles:  // 8 to a row of tiles
      return *Box::Rows(kBase + result / 8 * kTileRows * kPitch + result % 8 * kResultBytes / kTileRows,
                        kResultBytes / kTileRows, kTileRows, kPitch);
    case Memory::kFreshRanges:
      return *Box::Range(kBase + (uint64_t{step} * 64 + result) * kResultBytes, kResultBytes);
  }
  return *Box::Range(kBase + result * kResultBytes, kResultBytes);
}

}  // namespace

std::vector<Launch> RigidBodyLike(uint32_t seed, uint32_t num_steps, uint32_t num_kernels, uint32_t width,
                                  Memory memory) {
  const uint32_t most = width + width / 2;  // kernels of a layer
  const uint32_t least = width - width / 2;
  std::vector<Launch> launches;
  for (uint32_t step = 0; step < num_steps; ++step) {
    std::mt19937 random(seed);  // steps are alike
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(uint64_t{random()} * n >> 32); };
    const auto any_of = [&](const std::vector<uint32_t>& results) {
      return results[below(static_cast<uint32_t>(results.size()))];
    };
    std::vector<uint32_t> before = {most}, before_that = {0};  // results of one and two layers ago
    uint32_t num_left = num_kernels;
    for (uint32_t layer = 0; num_left != 0; ++layer) {
      const uint32_t num_here = std::min(num_left, std::max(1u, least + below(most - least + 1)));
      num_left -= num_here;
      std::vector<uint32_t> results(most);
      std::iota(results.begin(), results.end(), layer % 3 * most);
      for (uint32_t i = most; i > 1; --i) std::swap(results[i - 1], results[below(i)]);
      results.resize(num_here);
      for (const uint32_t result : results) {
        Launch& launch = launches.emplace_back();
        const auto add = [&](uint32_t of, AccessKind kind) {
          launch.accesses.push_back({BoxOf(of, step, memory), kind});
        };
        add(any_of(before), AccessKind::kRead);
        if (below(10) < 5) add(any_of(before), AccessKind::kRead);
        if (below(10) < 3) add(any_of(before_that), AccessKind::kRead);
        add(result, AccessKind::kReadWrite);
      }
      before_that = std::move(before);
      before = std::move(results);
    }
  }
  return launches;
}

}  // namespace tally::scheduler_window
