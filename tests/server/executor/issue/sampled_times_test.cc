#include "server/executor/issue/sampled_times.h"

#include "tests/server/executor/issue/remembered_graphs_fixture.h"

namespace tally::server {
namespace {

using std::chrono::nanoseconds;

class SampledTimesTest : public RememberedGraphsTest {
 protected:
  void SetUp() override {
    RememberedGraphsTest::SetUp();
    timer_.emplace(*completions_, 0, nullptr);
  }
  void TearDown() override {
    timer_.reset();
    RememberedGraphsTest::TearDown();
  }
  void Take(int64_t time_ns) {
    const int before = WatchedDriver::num_records;
    SampledTimes::Sample sample(times_, *timer_, stream_.real);
    WatchedDriver::now_ns += time_ns;
    sample.End(stream_.real);
    was_timed_ = WatchedDriver::num_records != before;
    ASSERT_EQ(driver_.cuStreamSynchronize(stream_.real), CUDA_SUCCESS);
    timer_->Collect();
  }

  std::optional<LaunchTimer> timer_;
  SampledTimes times_;
  bool was_timed_ = false;
};

TEST_F(SampledTimesTest, TheFirstFewAndThenEachSixtyFourthAreTimed) {
  EXPECT_EQ(times_.duration(), nanoseconds(0));
  int num_timed = 0;
  for (int i = 0; i < 257; ++i) {
    Take(1000);
    num_timed += was_timed_ ? 1 : 0;
  }
  EXPECT_EQ(num_timed, 8 + 4);
  EXPECT_EQ(times_.duration(), nanoseconds(1000));
}

TEST_F(SampledTimesTest, OneThatWasLongByAccidentDoesNotCount) {
  for (const int64_t time : {1000, 90'000, 1000, 1000}) Take(time);
  EXPECT_EQ(times_.duration(), nanoseconds(1000));
}

TEST_F(SampledTimesTest, WhatIsForgottenTakesNoLateTimes) {
  SampledTimes::Sample sample(times_, *timer_, stream_.real);
  WatchedDriver::now_ns += 5000;
  sample.End(stream_.real);
  times_.Forget();
  ASSERT_EQ(driver_.cuStreamSynchronize(stream_.real), CUDA_SUCCESS);
  timer_->Collect();
  EXPECT_EQ(times_.duration(), nanoseconds(0));
}

TEST_F(SampledTimesTest, WithoutAnEndItComesToNothing) {
  { const SampledTimes::Sample sample(times_, *timer_, stream_.real); }
  Take(1000);
  EXPECT_EQ(times_.duration(), nanoseconds(1000));
}

}  // namespace
}  // namespace tally::server
