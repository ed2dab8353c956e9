#include "client-shim/state/managed_advice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

namespace tally::client_shim {
namespace {

TEST(ManagedAdvice, AgreesWithAMapOfSingleBytes) {
  constexpr uint64_t kBytes = 300;
  std::mt19937 random(7);
  ManagedAdvice advice;
  std::array<Advice, kBytes> model;
  const auto pick = [&](uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(random); };
  for (int step = 0; step < 2000; ++step) {
    const uint64_t begin = pick(kBytes), size = 1 + pick(std::min<uint64_t>(60, kBytes - begin));
    const int what = static_cast<int>(pick(6));
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(pick(2))};
    const auto change = [&](Advice* all) {
      if (what == 0) all->is_read_mostly = true;
      if (what == 1) all->is_read_mostly = false;
      if (what == 2) all->preferred = location;
      if (what == 3) all->preferred = Advice::kNowhere;
      if (what == 4) all->accessed_by.insert(location.id);
    };
    if (what == 5) {
      advice.Forget(begin, size);
      for (uint64_t at = begin; at < begin + size; ++at) model[at] = Advice{};
    } else {
      advice.Change(begin, size, change);
      for (uint64_t at = begin; at < begin + size; ++at) change(&model[at]);
    }
    for (uint64_t at = 0; at < kBytes; ++at) {
      int visits = 0;
      advice.Visit(at, 1, [&](const Advice& here) {
        ++visits;
        ASSERT_TRUE(here == model[at]) << "byte " << at << " after step " << step;
      });
      ASSERT_EQ(visits, 1);
    }
  }
  advice.Forget(0, kBytes);
  EXPECT_EQ(advice.num_ranges(), 0u);
}

TEST(ManagedAdvice, JoinsWhatSaysTheSame) {
  ManagedAdvice advice;
  const auto set = [](Advice* all) { all->is_read_mostly = true; };
  advice.Change(0x1000, 0x1000, set);
  advice.Change(0x2000, 0x1000, set);
  EXPECT_EQ(advice.num_ranges(), 1u);
  advice.Change(0x1800, 0x1000, [](Advice* all) { all->is_read_mostly = false; });
  EXPECT_EQ(advice.num_ranges(), 2u);
}

}  // namespace
}  // namespace tally::client_shim
