#include "server/executor/issue/coverage_meter.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tally::server {
namespace {

using std::chrono::nanoseconds;

nanoseconds Of(const CoverageMeter& meter, Coverage coverage) { return meter.Figures()[static_cast<size_t>(coverage)]; }

TEST(CoverageMeterTest, LaunchesOfUnknownTimeCountOnceItIsKnown) {
  CoverageMeter meter(nullptr, nullptr);
  meter.Count(1, Coverage::kNotTriedYet, nanoseconds(0));
  meter.Count(1, Coverage::kNotTriedYet, nanoseconds(0));
  meter.Count(2, Coverage::kShort, nanoseconds(5));
  EXPECT_EQ(Of(meter, Coverage::kNotTriedYet), nanoseconds(0));
  meter.Count(1, Coverage::kGated, nanoseconds(100));
  meter.Count(1, Coverage::kGated, nanoseconds(110));
  EXPECT_EQ(Of(meter, Coverage::kNotTriedYet), nanoseconds(200));
  EXPECT_EQ(Of(meter, Coverage::kGated), nanoseconds(210));
  EXPECT_EQ(Of(meter, Coverage::kShort), nanoseconds(5));
}

TEST(CoverageMeterTest, EveryPartHasANameOfItsOwn) {
  std::set<std::string> names;
  for (size_t i = 0; i < control::kNumCoverages; ++i) {
    const control::CoverageName name = NameOf(static_cast<Coverage>(i));
    EXPECT_TRUE(names.insert(std::string(name.by) + "/" + name.reason).second) << i;
    EXPECT_EQ(std::string(name.by) == "time_slice", !std::string(name.reason).empty()) << i;
  }
}

}  // namespace
}  // namespace tally::server
