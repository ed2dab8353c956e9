// That what is remembered of a window is what the window would say.
#include "scheduler/window/repeated_window.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

#include "tests/scheduler/window/random_program.h"

namespace tally::scheduler {
namespace {

Access Read(uint64_t address) { return {*Box::Range(address, 8), AccessKind::kRead}; }
Access Write(uint64_t address) { return {*Box::Range(address, 8), AccessKind::kWrite}; }

class RepeatedWindowTest : public testing::Test {
 protected:
  struct Launch {
    uint64_t name = 0;
    std::vector<Access> accesses;
    Extent extent = Extent::kSaid;
  };

  // All of them, in a window of their own.
  void Run(const std::vector<Launch>& launches) {
    Window fresh;
    for (size_t i = 0; i < launches.size(); ++i) {
      const auto expected = fresh.Admit(launches[i].accesses, launches[i].extent);
      const auto entry = window_->Admit(launches[i].name, launches[i].accesses, launches[i].extent);
      ASSERT_TRUE(entry);
      ASSERT_EQ(entry->slot, expected->slot);
      ASSERT_EQ(entry->edges, expected->edges) << "launch " << i << " of " << launches.size();
    }
    window_->Clear();
  }
  uint64_t Compared(const std::vector<Launch>& launches) {
    const uint64_t before = window_->num_compared();
    Run(launches);
    return window_->num_compared() - before;
  }

  std::optional<RepeatedWindow> window_{std::in_place};
};

TEST_F(RepeatedWindowTest, WhatCameBeforeIsNotComparedAgain) {
  const std::vector<Launch> launches = {{1, {Write(0)}}, {2, {Write(8)}}, {3, {Read(0), Write(16)}}, {1, {Write(0)}}};
  EXPECT_EQ(Compared(launches), 4u);
  EXPECT_EQ(Compared(launches), 0u);
  EXPECT_EQ(Compared({launches[0], launches[1]}), 0u);
}

// The same launch behind others: what it must come behind is not the same.
TEST_F(RepeatedWindowTest, WhatCameInAnotherOrderIsCompared) {
  const Launch a = {1, {Write(0)}}, b = {2, {Read(0), Write(8)}}, c = {3, {Read(8)}};
  EXPECT_EQ(Compared({a, b, c}), 3u);
  EXPECT_EQ(Compared({b, a, c}), 3u);
  EXPECT_EQ(Compared({a, c, b}), 3u);
  EXPECT_EQ(Compared({b, a, c}), 0u);
}

// Whoever comes anew is compared with those that were not.
TEST_F(RepeatedWindowTest, WhatIsNewComesBehindWhatWasRemembered) {
  const Launch a = {1, {Write(0)}}, b = {2, {Write(8)}};
  Run({a, b});
  Run({a, b, {3, {Read(0)}}, {4, {Write(8)}}});
  Run({a, {5, {Read(0), Read(8)}}, b});
}

TEST_F(RepeatedWindowTest, WhoHasNoNameIsFoundByItsAccesses) {
  const std::vector<Launch> launches = {{0, {Write(0)}}, {0, {Read(0)}}, {0, {Write(0)}, Extent::kReadsAnything}};
  EXPECT_EQ(Compared(launches), 3u);
  EXPECT_EQ(Compared(launches), 0u);
  // The kind of an access counts, and the extent. Nobody is taken for one that has a name.
  EXPECT_EQ(Compared({{0, {Read(0)}}, {1, {Read(0)}}}), 2u);
  EXPECT_EQ(Compared({{0, {Write(0)}, Extent::kReadsAnything}}), 1u);
}

// What goes is what is of no use: else one window after the other would be learned anew, each at the cost of another.
TEST_F(RepeatedWindowTest, WhatIsInUseStays) {
  std::vector<std::vector<Launch>> steps(20);
  for (size_t k = 0; k < steps.size(); ++k) {
    for (uint64_t i = 0; i < kMostSlots; ++i) steps[k].push_back({1 + k * kMostSlots + i, {Write(i % 8 * 8)}});
  }
  uint64_t next = 1'000'000;
  for (int round = 0; round < 200; ++round) {
    uint64_t compared = 0;
    for (const auto& step : steps) compared += Compared(step);
    if (round > 100) {
      EXPECT_EQ(compared, 0u) << round;
    }
    std::vector<Launch> once;
    for (uint64_t i = 0; i < kMostSlots; ++i) once.push_back({next++, {Write(0)}});
    for (int i = 0; i < 3; ++i) Run(once);
  }
}

// Enough of them for places of the table to be shared.
TEST_F(RepeatedWindowTest, TheExtentOfOneWithoutANameCounts) {
  const Launch first = {1, {Write(0)}};
  for (uint64_t i = 1; i <= 400; ++i) {
    for (const Extent extent : {Extent::kSaid, Extent::kReadsAnything}) Run({first, {0, {Write(i * 8)}, extent}});
  }
}

TEST_F(RepeatedWindowTest, AFullWindowTakesNoMore) {
  for (int times = 0; times < 2; ++times) {
    for (uint64_t i = 0; i < kMostSlots; ++i) ASSERT_TRUE(window_->Admit(i + 1, std::vector{Write(i * 8)}));
    EXPECT_FALSE(window_->Admit(100, std::vector{Write(0)}));
    window_->Clear();
  }
}

// Windows that begin alike and go on differently, more of them than are remembered, with names and without.
TEST_F(RepeatedWindowTest, SaysWhatAWindowSays) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    window_.emplace();
    std::mt19937 random(seed);
    const RandomProgram program(seed, static_cast<Boxes>(seed % 3), 40);
    std::vector<Launch> kinds;
    for (const RandomLaunch& launch : program.launches()) {
      kinds.push_back({seed % 2 == 0 ? kinds.size() + 1 : 0, launch.accesses, launch.extent});
    }
    std::vector<std::vector<Launch>> known(1);
    for (int batch = 0; batch < 600; ++batch) {
      std::vector<Launch> launches = known[random() % known.size()];
      launches.resize(random() % (launches.size() + 1));
      const size_t length = random() % 2 == 0 ? launches.size() : launches.size() + random() % 40;
      while (launches.size() < std::min(length, kMostSlots)) launches.push_back(kinds[random() % kinds.size()]);
      ASSERT_NO_FATAL_FAILURE(Run(launches)) << "seed " << seed << ", batch " << batch;
      known.push_back(std::move(launches));
    }
    EXPECT_GT(window_->num_compared(), RepeatedWindow::kMostStates / 4);
  }
}

}  // namespace
}  // namespace tally::scheduler
