#include "scheduler/gate_choice.h"

#include <gtest/gtest.h>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kThreshold{31'600};

struct Kernel {
  nanoseconds original, gated, alone;
};

// Launches it until nothing is to be tried; how it is launched then.
bool IsGatedInTheEnd(GateChoice& choice, const Kernel& kernel) {
  for (int i = 0; i < 50; ++i) {
    const GateChoice::Next next = choice.NextLaunch(kernel.original, kThreshold);
    if (!next.is_sample) return next.is_gated;
    choice.OnDuration(next.is_gated, next.is_gated ? kernel.gated : kernel.alone);
  }
  ADD_FAILURE() << "does not settle";
  return true;
}

TEST(GateChoiceTest, AShortKernelWhoseGateIsDearIsLeftAloneIfThatIsFaster) {
  GateChoice faster, slower;
  EXPECT_FALSE(IsGatedInTheEnd(faster, {microseconds(10), microseconds(15), microseconds(11)}));
  EXPECT_TRUE(faster.is_left_alone());
  // The marker in front of it costs more than the gate.
  EXPECT_TRUE(IsGatedInTheEnd(slower, {microseconds(10), microseconds(11), microseconds(14)}));
  EXPECT_FALSE(slower.is_left_alone());
}

TEST(GateChoiceTest, OneThatNeedsItsGateOrHardlyPaysForItIsNotEvenTried) {
  const nanoseconds quick(1);  // how fast it would be alone: nobody is to find out
  GateChoice long_kernel, little, few_percent;
  EXPECT_TRUE(IsGatedInTheEnd(long_kernel, {microseconds(90), microseconds(120), quick}));
  EXPECT_TRUE(IsGatedInTheEnd(little, {microseconds(4), nanoseconds(4'400), quick}));
  EXPECT_TRUE(IsGatedInTheEnd(few_percent, {microseconds(25), nanoseconds(25'400), quick}));
  GateChoice unknown;
  EXPECT_TRUE(IsGatedInTheEnd(unknown, {nanoseconds(0), microseconds(20), quick}));
}

TEST(GateChoiceTest, TheGateIsMeasuredAgainNowAndThen) {
  GateChoice choice;
  const Kernel kernel{microseconds(10), microseconds(10), microseconds(10)};
  ASSERT_TRUE(IsGatedInTheEnd(choice, kernel));
  int num_samples = 0;
  for (uint32_t i = 0; i < 4 * GateChoice::kLaunchesBetweenSamples; ++i) {
    num_samples += choice.NextLaunch(kernel.original, kThreshold).is_sample ? 1 : 0;
  }
  EXPECT_EQ(num_samples, 4);
}

TEST(GateChoiceTest, AFewMeasuredTurnaroundsCountMoreThanTheEstimate) {
  GateChoice choice;
  EXPECT_EQ(choice.Turnaround(microseconds(40)), microseconds(40));
  EXPECT_FALSE(choice.is_turnaround_measured());
  choice.OnTurnaround(microseconds(500));
  EXPECT_TRUE(choice.is_turnaround_measured());
  EXPECT_EQ(choice.Turnaround(microseconds(40)), microseconds(40)) << "one may be long by accident";
  for (int i = 0; i < 7; ++i) choice.OnTurnaround(microseconds(60));
  EXPECT_EQ(choice.Turnaround(microseconds(40)), microseconds(60));
}

// What is behind it in its queue leaves at once, but only where a busy service leaves room.
TEST(GateChoiceTest, NoBlockRunsForLongerThanItsKernel) {
  for (const bool is_long : {false, true}) {
    GateChoice choice;
    for (int i = 0; i < 8; ++i) choice.OnTurnaround(microseconds(1100));
    EXPECT_TRUE(choice.has_long_blocks()) << "as far as is known";
    choice.OnDuration(false, microseconds(900));
    choice.OnDuration(true, is_long ? GateChoice::kLongBlocks : microseconds(30));
    EXPECT_EQ(choice.has_long_blocks(), is_long);
  }
}

}  // namespace
}  // namespace tally::scheduler
