#include "scheduler/recent_times.h"

#include <gtest/gtest.h>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;

TEST(RecentTimesTest, ForgetsWhatIsOld) {
  RecentTimes times;
  for (int i = 0; i < 100; ++i) times.Add(microseconds(i));
  EXPECT_EQ(times.size(), RecentTimes::kMost);
  EXPECT_EQ(times.Least(), microseconds(92));
  EXPECT_EQ(times.Median(), microseconds(96));
  EXPECT_EQ(times.UpperQuartile(), microseconds(97));
}

TEST(RecentTimesTest, AFewTimesSayOnlyThatItTakesLess) {
  RecentTimes times;
  EXPECT_EQ(times.OrEstimate(microseconds(40)), microseconds(40));
  times.Add(microseconds(500));
  EXPECT_EQ(times.OrEstimate(microseconds(40)), microseconds(40));
  times.Add(microseconds(30));
  EXPECT_EQ(times.OrEstimate(microseconds(40)), microseconds(30));
  times.Add(microseconds(60));
  EXPECT_EQ(times.OrEstimate(microseconds(40)), times.UpperQuartile());
}

}  // namespace
}  // namespace tally::scheduler
