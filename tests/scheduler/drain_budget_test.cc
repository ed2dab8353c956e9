#include "scheduler/drain_budget.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr TenantId kA{0, 1};
constexpr TenantId kB{1, 1};

LaunchAsked Asked(int microseconds_long, uint16_t fill) {
  return {.duration = microseconds(microseconds_long), .fill = fill};
}

TEST(DrainBudget, WhateverIsAskedGoesAlone) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  EXPECT_TRUE(budget.Admits(kA, Asked(100'000, 1000), TimePoint{}));
  EXPECT_TRUE(budget.Admits(kA, Asked(0, 1000), TimePoint{}));
}

TEST(DrainBudget, LaunchesOfOneStreamAddUp) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(budget.Admits(kA, Asked(100, 100), TimePoint{})) << i;
    budget.OnDispatched(kA, Asked(100, 100), TimePoint{});
  }
  EXPECT_FALSE(budget.Admits(kA, Asked(100, 100), TimePoint{}));
  EXPECT_EQ(budget.drain(), microseconds(500));
  budget.OnEnded(kA, Asked(100, 100), microseconds(100), TimePoint{});
  EXPECT_TRUE(budget.Admits(kA, Asked(100, 100), TimePoint{}));
}

TEST(DrainBudget, AStreamThatHasEndedLeavesTheOthersAsTheyWere) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  budget.OnDispatched(kA, Asked(100, 1000), TimePoint{});
  budget.OnDispatched(kB, Asked(300, 1000), TimePoint{});
  EXPECT_EQ(budget.drain(), microseconds(400));
  budget.OnEnded(kA, Asked(100, 1000), microseconds(100), TimePoint{});
  EXPECT_EQ(budget.drain(), microseconds(300));
  budget.OnEnded(kB, Asked(300, 1000), microseconds(300), TimePoint{});
  EXPECT_TRUE(budget.empty());
}

TEST(DrainBudget, NothingGoesBesideWhatIsNotMeasuredUntilItHasEnded) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  budget.OnDispatched(kA, Asked(100, 100), TimePoint{});
  const Nanoseconds counted = budget.OnDispatched(kB, Asked(0, 100), TimePoint{});
  EXPECT_FALSE(budget.Admits(kA, Asked(100, 100), TimePoint{}));
  budget.OnEnded(kB, Asked(0, 100), counted, TimePoint{});
  EXPECT_TRUE(budget.Admits(kA, Asked(100, 100), TimePoint{}));
}

TEST(DrainBudget, StreamsThatFitTogetherRunSideBySide) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  budget.OnDispatched(kA, Asked(400, 300), TimePoint{});
  EXPECT_TRUE(budget.Admits(kB, Asked(400, 600), TimePoint{}));
  EXPECT_FALSE(budget.Admits(kB, Asked(400, 800), TimePoint{})) << "0.3 + 0.8 of the GPU: one after the other";
  EXPECT_EQ(budget.RoomFor(kB, Asked(100, 800), TimePoint{}), DrainBudget::Room::kBehind);
  EXPECT_EQ(budget.RoomFor(kB, Asked(100, 700), TimePoint{}), DrainBudget::Room::kBeside);
  EXPECT_TRUE(budget.Admits(kA, {.duration = microseconds(400), .stream = 1, .fill = 300}, TimePoint{}));
  EXPECT_FALSE(budget.Admits(kA, {.duration = microseconds(400), .stream = 0, .fill = 300}, TimePoint{}));
}

TEST(DrainBudget, WhatCanYieldCountsWithItsTurnaroundIfItIsFirst) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  const LaunchAsked yielding{.duration = milliseconds(50), .fill = 400, .can_yield = true};
  EXPECT_EQ(budget.OnDispatched(kA, yielding, TimePoint{}), microseconds(30));
  EXPECT_TRUE(budget.Admits(kB, yielding, TimePoint{})) << "beside it";
  EXPECT_TRUE(budget.Admits(kB, Asked(470, 1000), TimePoint{})) << "after it has yielded";
  EXPECT_FALSE(budget.Admits(kA, yielding, TimePoint{})) << "behind it, it may have to be waited for";
  budget.OnEnded(kA, yielding, microseconds(30), TimePoint{});
  EXPECT_TRUE(budget.empty());
}

LaunchAsked Short(int microseconds_long, uint64_t stream = 0, uint16_t fill = kFillsGpu) {
  return {.duration = microseconds(microseconds_long), .stream = stream, .fill = fill, .is_short = true};
}
const Nanoseconds kThreshold = microseconds(30) + kGiveBackOverhead;

TEST(DrainBudget, ShortLaunchesDrainWithinTheThreshold) {
  DrainBudget budget(microseconds(500), kThreshold, milliseconds(250));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(budget.Admits(kA, Short(10), TimePoint{})) << i;
    budget.OnDispatched(kA, Short(10), TimePoint{});
  }
  EXPECT_FALSE(budget.Admits(kA, Short(1), TimePoint{}));
  EXPECT_FALSE(budget.Admits(kB, Short(1), TimePoint{})) << "two streams that fill the GPU run one after another";
  EXPECT_TRUE(budget.Admits(kA, Asked(400, 1000), TimePoint{})) << "others have their own bound";
  budget.OnEnded(kA, Short(10), microseconds(10), TimePoint{});
  EXPECT_TRUE(budget.Admits(kA, Short(10), TimePoint{}));
}

LaunchAsked ShortFor(Nanoseconds threshold, int microseconds_long) {
  LaunchAsked asked = Short(microseconds_long);
  asked.turnaround = threshold;
  return asked;
}

TEST(DrainBudget, ATenantsShortLaunchesDrainWithinItsOwnThreshold) {
  const Nanoseconds soon = microseconds(10) + kGiveBackOverhead, late = microseconds(100) + kGiveBackOverhead;
  DrainBudget budget(microseconds(500), kThreshold, milliseconds(250));
  ASSERT_TRUE(budget.Admits(kA, ShortFor(soon, 8), TimePoint{}));
  budget.OnDispatched(kA, ShortFor(soon, 8), TimePoint{});
  EXPECT_FALSE(budget.Admits(kA, ShortFor(soon, 8), TimePoint{})) << "16 us of its own";
  EXPECT_TRUE(budget.Admits(kA, ShortFor(soon, 2), TimePoint{}));
  EXPECT_TRUE(budget.Admits(kB, Short(20), TimePoint{})) << "others have everybody's";
  EXPECT_FALSE(budget.Admits(kB, Short(25), TimePoint{}));
  // One that need not be as quick keeps nobody out: the GPU is not free sooner without the other.
  EXPECT_TRUE(budget.Admits(kB, ShortFor(late, 90), TimePoint{}));
  budget.OnDispatched(kB, ShortFor(late, 90), TimePoint{});
  EXPECT_TRUE(budget.Admits(kA, ShortFor(soon, 2), TimePoint{}));
  EXPECT_FALSE(budget.Admits(kA, ShortFor(soon, 3), TimePoint{}));
  EXPECT_FALSE(budget.Admits(kB, ShortFor(late, 3), TimePoint{})) << "101 us together";
  budget.OnEnded(kB, ShortFor(late, 90), microseconds(90), TimePoint{});
  EXPECT_FALSE(budget.Admits(kB, Short(25), TimePoint{}));
}

TEST(DrainBudget, ShortLaunchesThatFitTogetherRunSideBySide) {
  DrainBudget budget(microseconds(500), kThreshold, milliseconds(250));
  for (uint64_t stream = 0; stream < 5; ++stream) {
    ASSERT_TRUE(budget.Admits(kA, Short(25, stream, 200), TimePoint{})) << stream;
    budget.OnDispatched(kA, Short(25, stream, 200), TimePoint{});
  }
  EXPECT_FALSE(budget.Admits(kA, Short(25, 5, 200), TimePoint{}));
}

TEST(DrainBudget, AShortLaunchGoesIfNoOtherShortOneIsInFlight) {
  DrainBudget budget(microseconds(500), kThreshold, milliseconds(250));
  budget.OnDispatched(kA, Asked(300, 1000), TimePoint{});
  EXPECT_TRUE(budget.Admits(kA, Short(80), TimePoint{})) << "a slice that is longer than the threshold";
  budget.OnDispatched(kA, Short(80), TimePoint{});
  EXPECT_FALSE(budget.Admits(kA, Short(1), TimePoint{}));
}

// Whatever comes and goes: short launches in flight drain within the threshold, or there is one of them.
TEST(DrainBudgetProperty, ShortLaunchesNeverTakeLongerThanTheThreshold) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const Nanoseconds threshold = microseconds(random() % 100);
    DrainBudget budget(microseconds(500), threshold, milliseconds(250));
    struct InFlight {
      TenantId tenant;
      LaunchAsked asked;
      Nanoseconds counted;
    };
    std::vector<InFlight> in_flight;
    for (int step = 0; step < 500; ++step) {
      LaunchAsked asked = Short(1 + static_cast<int>(random() % 40), random() % 4);
      asked.is_short = random() % 3 != 0;
      const TenantId tenant{static_cast<uint32_t>(random() % 3), 1};
      if (budget.Admits(tenant, asked, TimePoint{})) {
        in_flight.push_back({tenant, asked, budget.OnDispatched(tenant, asked, TimePoint{})});
      } else {
        const auto ended = in_flight.begin() + static_cast<std::ptrdiff_t>(random() % in_flight.size());
        budget.OnEnded(ended->tenant, ended->asked, ended->counted, TimePoint{});
        in_flight.erase(ended);
      }
      Nanoseconds drain{0};
      int num_short = 0;
      for (const InFlight& one : in_flight) {
        if (!one.asked.is_short) continue;
        drain += one.asked.duration;
        ++num_short;
      }
      ASSERT_TRUE(num_short <= 1 || drain + kGiveBackOverhead <= threshold) << round << " " << step;
    }
  }
}

TEST(DrainBudget, WhatWasNeverMeasuredGoesAlone) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  budget.OnDispatched(kA, Asked(10, 10), TimePoint{});
  EXPECT_FALSE(budget.Admits(kB, Asked(0, 10), TimePoint{}));
  budget.OnEnded(kA, Asked(10, 10), microseconds(10), TimePoint{});
  budget.OnDispatched(kB, Asked(0, 10), TimePoint{});
  EXPECT_FALSE(budget.Admits(kA, Asked(10, 10), TimePoint{}));
}

TEST(DrainBudget, GivesUpWaitingForWhatDoesNotEnd) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  ManualClock clock;
  budget.OnDispatched(kA, Asked(400, 1000), clock.Now());
  clock.Advance(milliseconds(249));
  EXPECT_FALSE(budget.Admits(kA, Asked(400, 1000), clock.Now()));
  clock.Advance(milliseconds(1));
  EXPECT_EQ(budget.GivesUpAt(), clock.Now());
  EXPECT_TRUE(budget.Admits(kA, Asked(400, 1000), clock.Now()));
  budget.OnDispatched(kA, Asked(400, 1000), clock.Now());
  EXPECT_FALSE(budget.Admits(kA, Asked(400, 1000), clock.Now())) << "one at a time";
}

TEST(DrainBudget, MoreStreamsThanItCountsDoNotConfuseIt) {
  DrainBudget budget(milliseconds(1), microseconds(30), milliseconds(250));
  for (uint32_t i = 0; i < 40; ++i) budget.OnDispatched({i, 1}, Asked(10, 10), TimePoint{});
  EXPECT_FALSE(budget.Admits({50, 1}, Asked(10, 10), TimePoint{})) << "no place for one more stream";
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_FALSE(budget.empty());
    budget.OnEnded({i, 1}, Asked(10, 10), microseconds(10), TimePoint{});
  }
  EXPECT_TRUE(budget.empty());
  EXPECT_EQ(budget.drain(), Nanoseconds(0));
  EXPECT_TRUE(budget.Admits({50, 1}, Asked(10, 10), TimePoint{}));
}

}  // namespace
}  // namespace tally::scheduler
