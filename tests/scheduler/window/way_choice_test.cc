#include "scheduler/window/way_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr size_t kSamples = 2 * WayChoice::kSamplesEach;

// Uses of a program in which the two ways take these times; which way is chosen once a look has ended.
IssueWay Look(WayChoice& choice, nanoseconds in_order, nanoseconds graph) {
  for (size_t i = 0; i < kSamples; ++i) {
    const WayChoice::Next next = choice.NextUse();
    EXPECT_TRUE(next.is_sample) << i;
    choice.OnDuration(next.way, next.way == IssueWay::kGraph ? graph : in_order);
  }
  EXPECT_FALSE(choice.is_looking());
  return choice.chosen();
}

TEST(WayChoiceTest, AGraphHasToBeFivePercentFaster) {
  const auto chosen = [](int graph_us) {
    WayChoice choice;
    return Look(choice, microseconds(100), microseconds(graph_us));
  };
  EXPECT_EQ(chosen(94), IssueWay::kGraph);
  EXPECT_EQ(chosen(95), IssueWay::kGraph);
  EXPECT_EQ(chosen(96), IssueWay::kInOrder);
  EXPECT_EQ(chosen(200), IssueWay::kInOrder);
}

TEST(WayChoiceTest, BothWaysTakeTurnsSoThatBothMeetTheSameProgram) {
  WayChoice choice;
  for (size_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(choice.NextUse().way, i % 2 == 0 ? IssueWay::kGraph : IssueWay::kInOrder) << i;
  }
}

// The host is far ahead of the GPU: all samples are on the stream before the first has ended.
TEST(WayChoiceTest, ProgramOrderUntilTheAnswersAreThere) {
  WayChoice choice;
  std::vector<IssueWay> asked;
  for (size_t i = 0; i < kSamples; ++i) asked.push_back(choice.NextUse().way);
  for (size_t i = 0; i < 100; ++i) {
    const WayChoice::Next next = choice.NextUse();
    EXPECT_EQ(next.way, IssueWay::kInOrder);
    EXPECT_FALSE(next.is_sample);
  }
  for (const IssueWay way : asked) choice.OnDuration(way, microseconds(way == IssueWay::kGraph ? 10 : 20));
  EXPECT_EQ(choice.NextUse().way, IssueWay::kGraph);
}

TEST(WayChoiceTest, TwoLongTimesOfFiveAreNoReason) {
  WayChoice choice;
  int num_graphs = 0;
  for (size_t i = 0; i < kSamples; ++i) {
    const WayChoice::Next next = choice.NextUse();
    const bool is_graph = next.way == IssueWay::kGraph;
    const bool is_disturbed = is_graph && ++num_graphs <= 2;
    choice.OnDuration(next.way, microseconds(is_disturbed ? 10'000 : is_graph ? 50 : 100));
  }
  EXPECT_EQ(choice.chosen(), IssueWay::kGraph);
  EXPECT_EQ(choice.duration(IssueWay::kGraph), microseconds(50));
  EXPECT_EQ(choice.duration(IssueWay::kInOrder), microseconds(100));
}

TEST(WayChoiceTest, ALostSampleIsTakenAgain) {
  WayChoice choice;
  for (int i = 0; i < 20; ++i) {
    const WayChoice::Next next = choice.NextUse();
    ASSERT_EQ(next.way, IssueWay::kGraph);
    ASSERT_TRUE(next.is_sample);
    choice.OnLost(next.way);
  }
  EXPECT_EQ(Look(choice, microseconds(100), microseconds(50)), IssueWay::kGraph);
}

TEST(WayChoiceTest, LooksAgainRarelyAndDropsWhatBecameSlower) {
  constexpr uint64_t kUses = 7;
  WayChoice choice(kUses);
  ASSERT_EQ(Look(choice, microseconds(100), microseconds(50)), IssueWay::kGraph);
  for (uint64_t i = 0; i < kUses; ++i) {
    const WayChoice::Next next = choice.NextUse();
    EXPECT_EQ(next.way, IssueWay::kGraph) << i;
    EXPECT_FALSE(next.is_sample) << i;
  }
  ASSERT_EQ(Look(choice, microseconds(100), microseconds(99)), IssueWay::kInOrder);
  for (uint64_t i = 0; i < kUses; ++i) EXPECT_EQ(choice.NextUse().way, IssueWay::kInOrder) << i;
  EXPECT_EQ(Look(choice, microseconds(100), microseconds(50)), IssueWay::kGraph);
}

TEST(WayChoiceTest, AClockThatShowsNothingDecidesForProgramOrder) {
  WayChoice choice;
  EXPECT_EQ(Look(choice, nanoseconds(0), nanoseconds(0)), IssueWay::kInOrder);
}

}  // namespace
}  // namespace tally::scheduler
