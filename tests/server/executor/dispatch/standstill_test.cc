#include "server/executor/dispatch/standstill.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/server/executor/fakes/scripted_watch.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;

class CountingWatch final : public ScriptedWatch {
 public:
  void OnStandstill(int device) override { num_said += device == 3 ? 1 : 100; }
  int num_said = 0;
};

TEST(StandstillTest, IsSaidAgainButNotAllTheTime) {
  CountingWatch watch;
  const TimePoint since{std::chrono::hours(1)};
  Standstill standstill(&watch, 3, since);
  std::vector<int> found;
  for (const int ms : {0, 249, 250, 251, 499, 500, 999, 1000, 1999, 2000, 2999, 3000, 3001}) {
    standstill.OnWaiting(since + milliseconds(ms));
    found.push_back(watch.num_said);
  }
  EXPECT_EQ(found, (std::vector{0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
}

TEST(StandstillTest, NobodyNeedBeTold) { Standstill(nullptr, 0, TimePoint{}).OnWaiting(TimePoint{milliseconds(1000)}); }

}  // namespace
}  // namespace tally::server
