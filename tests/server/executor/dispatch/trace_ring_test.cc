#include "server/executor/dispatch/trace_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "tests/server/executor/dispatch/scripted_gpu.h"

namespace tally::server {
namespace {

using control::TraceKind;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class TraceRingTest : public testing::Test {
 protected:
  TraceRingTest() {
    ScriptedGpu::Reset();
    ring_.emplace(completions_, 7, 0);
    clock_.Advance(std::chrono::seconds(100));
  }
  // An operation, so long after the last one.
  void Put(std::chrono::nanoseconds after, const char* name = "k", uintptr_t stream = 1) {
    clock_.Advance(after);
    const TimePoint asked = clock_.Now();
    ring_->Begin(Stream(stream), asked, [&](TraceName* into) {
      ++num_named_;
      std::strcpy(into->data(), name);
    });
    ring_->End(Stream(stream), asked, clock_);
  }
  std::vector<control::TraceEvent> Take() {
    std::vector<control::TraceEvent> events;
    for (TraceRecord record; ring_->Take(&record); record = {}) events.push_back(record.event);
    return events;
  }
  static CUstream Stream(uintptr_t number) { return reinterpret_cast<CUstream>(number); }

  const DriverTable table_ = ScriptedGpu::Table();
  CompletionSource completions_{table_};
  ManualClock clock_;
  std::optional<TraceRing> ring_;
  int num_named_ = 0;
};

TEST_F(TraceRingTest, SlowOperationsHaveARecordEach) {
  for (int i = 0; i < 100; ++i) Put(TraceRing::kPerRecord);
  const auto events = Take();
  ASSERT_EQ(events.size(), 100u);
  for (const auto& event : events) EXPECT_EQ(event.num_launches, 1u);
  EXPECT_EQ(events[1].asked_ns - events[0].asked_ns, static_cast<uint64_t>(TraceRing::kPerRecord.count()));
}

TEST_F(TraceRingTest, ABurstHasOneEachAndThenTheyShare) {
  for (int i = 0; i < 1000; ++i) Put(microseconds(1));
  const auto events = Take();
  // 64 saved, and one more in each 100 us of the rest.
  EXPECT_GE(events.size(), 64u);
  EXPECT_LE(events.size(), 64u + 10u);
  for (int i = 0; i < TraceRing::kMostSaved; ++i) EXPECT_EQ(events[static_cast<size_t>(i)].num_launches, 1u);
  EXPECT_NEAR(events.back().num_launches, 100, 1);
  EXPECT_LE(num_named_, static_cast<int>(events.size()) + 1) << "a name costs a call of the driver";
}

TEST_F(TraceRingTest, AWaitForTheStreamEndsItsRunAndNoOther) {
  for (int i = 0; i < 70; ++i) Put(microseconds(1), "k", 1);
  Put(microseconds(1), "other", 2);
  Take();
  ring_->CloseRun(Stream(1));
  const auto events = Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].queue, 0u);
  ring_->CloseRun(Stream(1));
  EXPECT_TRUE(Take().empty()) << "there is none";
}

TEST_F(TraceRingTest, WhatFindsNoRoomIsCounted) {
  for (int i = 0; i < 300; ++i) Put(milliseconds(1));
  EXPECT_EQ(ring_->TakeNumDropped(), 300u - 256u);
  EXPECT_EQ(ring_->TakeNumDropped(), 0u);
  EXPECT_EQ(Take().size(), 256u);
  Put(milliseconds(1));
  EXPECT_EQ(Take().size(), 1u) << "there is room again";
}

TEST_F(TraceRingTest, StreamsAreQueuesInTheOrderOfTheirFirstWork) {
  for (uintptr_t stream : {5, 3, 5, 9}) Put(milliseconds(1), "k", stream);
  const auto events = Take();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ((std::vector<uint32_t>{events[0].queue, events[1].queue, events[2].queue, events[3].queue}),
            (std::vector<uint32_t>{0, 1, 0, 2}));
  // More than are known at one time: the first make room.
  for (uintptr_t stream = 20; stream < 40; ++stream) Put(milliseconds(1), "k", stream);
  EXPECT_EQ(Take().size(), 20u);
}

TEST_F(TraceRingTest, WaitsAreRecordsWithoutMarks) {
  ring_->AddWait(Stream(1), clock_.Now(), clock_.Now() + milliseconds(2), control::TraceReason::kHighPriority);
  TraceRecord record;
  ASSERT_TRUE(ring_->Take(&record));
  EXPECT_EQ(record.event.kind, static_cast<uint16_t>(TraceKind::kWait));
  EXPECT_EQ(record.event.end_ns - record.event.begin_ns, 2'000'000u);
  EXPECT_EQ(record.event.session_id, 7u);
  EXPECT_FALSE(record.begin.exists());
}

TEST_F(TraceRingTest, TheMarksOfARunSayHowLongItTook) {
  ScriptedGpu::SetDuration(0.5f);
  Put(milliseconds(1), "gemm");
  TraceRecord record;
  ASSERT_TRUE(ring_->Take(&record));
  EXPECT_STREQ(record.name.data(), "gemm");
  EXPECT_EQ(completions_.Between(record.begin, record.end), microseconds(500));
  // And the next ones have marks, too.
  for (int i = 0; i < 600; ++i) {
    Put(milliseconds(1));
    ASSERT_TRUE(ring_->Take(&record));
    EXPECT_TRUE(record.begin.exists() && record.end.exists());
  }
}

}  // namespace
}  // namespace tally::server
