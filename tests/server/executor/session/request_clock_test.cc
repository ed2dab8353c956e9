#include "server/executor/session/request_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/executor/session/slo_watch.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class RequestClockTest : public testing::Test {
 protected:
  RequestClockTest() { clock_.Advance(std::chrono::seconds(1)); }
  void Copy() { requests_.OnWork(/*is_launch=*/false, clock_); }
  void Launch() { requests_.OnWork(/*is_launch=*/true, clock_); }
  std::optional<std::chrono::nanoseconds> Wait() { return requests_.OnWaited(clock_.Now()); }

  ManualClock clock_;
  RequestClock requests_;
};

TEST_F(RequestClockTest, FromTheFirstWorkToTheEndOfTheWait) {
  Copy();
  clock_.Advance(microseconds(10));
  Launch();
  clock_.Advance(microseconds(20));
  Launch();
  EXPECT_TRUE(requests_.has_begun());
  clock_.Advance(microseconds(30));
  EXPECT_EQ(Wait(), microseconds(60));
  EXPECT_FALSE(requests_.has_begun());
}

TEST_F(RequestClockTest, TheTimeBetweenRequestsIsNobodys) {
  Launch();
  Wait();
  clock_.Advance(std::chrono::seconds(5));
  Launch();
  clock_.Advance(microseconds(7));
  EXPECT_EQ(Wait(), microseconds(7));
}

TEST_F(RequestClockTest, AWaitWithoutALaunchEndsNothing) {
  EXPECT_EQ(Wait(), std::nullopt);
  Copy();
  clock_.Advance(microseconds(10));
  EXPECT_EQ(Wait(), std::nullopt);
  clock_.Advance(std::chrono::seconds(5));  // the program thinks
  Launch();
  clock_.Advance(microseconds(7));
  EXPECT_EQ(Wait(), microseconds(7));
}

TEST(SloWatchTest, TellsOfEveryChangeAndNoMore) {
  int num_changes = 0;
  SloWatch watch({.percentile = 99, .latency = microseconds(100)}, [&] { ++num_changes; });
  for (int i = 0; i < 199; ++i) watch.OnRequest(microseconds(200));
  EXPECT_EQ(num_changes, 0);
  EXPECT_EQ(watch.figures().observed.count(), 0);
  watch.OnRequest(microseconds(200));
  EXPECT_EQ(num_changes, 1);
  EXPECT_EQ(watch.figures().num_requests, 200u);
  EXPECT_GE(watch.figures().observed, microseconds(200));
  EXPECT_EQ(watch.figures().throttle_level, scheduler::SloFeedback::kFirstStep + 1);
  for (int i = 0; i < 200; ++i) watch.OnRequest(microseconds(90));  // as it should be
  EXPECT_EQ(num_changes, 1);
}

TEST(SloWatchTest, WhereTenantsHaveChangedEarlierFailuresDoNotPutOffTheNextTrial) {
  for (const bool have_changed : {false, true}) {
    SloWatch watch({.percentile = 99, .latency = microseconds(100)}, [] {});
    const auto pass_windows = [&](int num_windows, microseconds took) {
      for (int i = 0; i < num_windows * 200; ++i) watch.OnRequest(took);
      return watch.figures().throttle_level - scheduler::SloFeedback::kFirstStep;
    };
    watch.OnTuning({});
    EXPECT_EQ(pass_windows(4, microseconds(50)), -1);
    EXPECT_EQ(pass_windows(1, microseconds(200)), 0) << "that was too generous";
    watch.OnTuning({.target_drain = milliseconds(have_changed ? 1 : 2)});  // it may change meanwhile
    watch.OnTuning({.target_drain = milliseconds(1)});
    EXPECT_EQ(pass_windows(4, microseconds(50)), have_changed ? -1 : 0);
  }
}

}  // namespace
}  // namespace tally::server
