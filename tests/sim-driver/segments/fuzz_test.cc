// Random kernels with random launches: every access of the software GPU lies in what was predicted for the launch.
//
// Here a few; `tools/fuzz segments SECONDS` goes on from TALLY_FUZZ_SEED for TALLY_FUZZ_SECONDS.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/sim-driver/segments/random_index.h"
#include "tests/sim-driver/segments/random_kernel.h"
#include "tests/sim-driver/segments/recorded_launch.h"
#include "tests/sim-driver/segments/two_arenas.h"

namespace tally::ptx_transforms {
namespace {

using differential::RandomSource;

constexpr int kLaunchesEach = 3;
constexpr uint64_t kFuzzBudget = 1'000'000;  // thread instructions

uint64_t Environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Calls `launch(seed)` for as many seeds as there is time for, at least once; for `count` of them without being told.
template <typename Launch>
void ForSeeds(uint64_t count, Launch launch) {
  using Clock = std::chrono::steady_clock;
  const uint64_t first = Environment("TALLY_FUZZ_SEED", 1), seconds = Environment("TALLY_FUZZ_SECONDS", 0);
  const auto end = Clock::now() + std::chrono::milliseconds(seconds * 500);  // of two tests
  for (uint64_t seed = first; !testing::Test::HasFatalFailure(); ++seed) {
    launch(seed);
    if (seconds == 0 ? seed - first + 1 >= count : Clock::now() >= end) break;
  }
}

KernelSegments OnlyKernelOf(const std::string& text) {
  const Result<Module> module = ParseModule(text);
  EXPECT_TRUE(module) << text;
  if (!module) return {};
  std::vector<KernelSegments> all = FindSegments(*module);
  EXPECT_EQ(all.size(), 1u) << text;
  return all.empty() ? KernelSegments() : std::move(all[0]);
}

TEST(SegmentFuzz, RandomAddresses) {
  RecordedLaunches launches;
  ForSeeds(250, [&](uint64_t seed) {
    RandomSource random(seed);
    const std::string text = RandomIndexKernel(random);
    const KernelSegments segments = OnlyKernelOf(text);
    TwoArenas arena(text);
    ASSERT_TRUE(arena.is_good()) << text;
    for (int k = 0; k < kLaunchesEach; ++k) {
      sim_driver::LaunchRequest request = arena.Request(0, random);
      Put(request, 0, arena.base() + kArenaMiddle);
      *reinterpret_cast<uint32_t*>(arena.base() + kArenaMiddle) = RandomSize(random);
      for (uint32_t at = 8; at < 20; at += 4) Put(request, at, RandomSize(random));
      Put(request, 24, random.Chance(50) ? RandomSize(random) : random.Next());
      const auto outside = launches.Check(std::move(request), segments, kFuzzBudget);
      ASSERT_FALSE(outside) << "seed " << seed << ": " << *outside << text;
    }
  });
  fmt::print("{}", Report("random addresses", launches.totals()));
}

TEST(SegmentFuzz, RandomKernels) {
  RecordedLaunches launches;
  ForSeeds(250, [&](uint64_t seed) {
    RandomSource random(seed);
    const std::string text = RandomKernel(random);
    const KernelSegments segments = OnlyKernelOf(text);
    TwoArenas arena(text);
    ASSERT_TRUE(arena.is_good()) << text;
    for (int k = 0; k < kLaunchesEach; ++k) {
      sim_driver::LaunchRequest request = arena.Request(0, random);
      Put(request, 0, arena.base() + kArenaMiddle);
      Put(request, 8, arena.other() + kArenaMiddle);
      for (uint32_t at = 16; at < 28; at += 4)
        Put(request, at, random.Chance(75) ? random.Below(30) : RandomSize(random));
      const auto outside = launches.Check(std::move(request), segments, kFuzzBudget);
      ASSERT_FALSE(outside) << "seed " << seed << ": " << *outside << text;
    }
  });
  fmt::print("{}", Report("random kernels", launches.totals()));
}

}  // namespace
}  // namespace tally::ptx_transforms
