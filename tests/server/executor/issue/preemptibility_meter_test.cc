#include "server/executor/issue/preemptibility_meter.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tally::server {
namespace {

using std::chrono::nanoseconds;

nanoseconds Of(const PreemptibilityMeter& meter, Preemptibility preemptibility) {
  return meter.Figures()[static_cast<size_t>(preemptibility)];
}

TEST(PreemptibilityMeterTest, LaunchesOfUnknownTimeCountOnceItIsKnown) {
  PreemptibilityMeter meter(nullptr, nullptr);
  meter.Count(1, Preemptibility::kNotTriedYet, nanoseconds(0));
  meter.Count(1, Preemptibility::kNotTriedYet, nanoseconds(0));
  meter.Count(2, Preemptibility::kShort, nanoseconds(5));
  EXPECT_EQ(Of(meter, Preemptibility::kNotTriedYet), nanoseconds(0));
  meter.Count(1, Preemptibility::kGated, nanoseconds(100));
  meter.Count(1, Preemptibility::kGated, nanoseconds(110));
  EXPECT_EQ(Of(meter, Preemptibility::kNotTriedYet), nanoseconds(200));
  EXPECT_EQ(Of(meter, Preemptibility::kGated), nanoseconds(210));
  EXPECT_EQ(Of(meter, Preemptibility::kShort), nanoseconds(5));
}

TEST(PreemptibilityMeterTest, EveryPartHasANameOfItsOwn) {
  std::set<std::string> names;
  for (size_t i = 0; i < control::kNumPreemptibilities; ++i) {
    const control::PreemptibilityName name = NameOf(static_cast<Preemptibility>(i));
    EXPECT_TRUE(names.insert(std::string(name.by) + "/" + name.reason).second) << i;
    EXPECT_EQ(std::string(name.by) == "time_slice", !std::string(name.reason).empty()) << i;
  }
}

}  // namespace
}  // namespace tally::server
