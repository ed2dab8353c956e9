#include "server/executor/dispatch/figure_counters.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

TEST(FigureCounters, PartsOfASessionAddUpRowByRow) {
  FigureCounters one, other;
  for (const control::Figure figure : control::kAllFigures) {
    for (size_t i = 0; i < figure.num_entries(); ++i) {
      one.Add(figure, 1000 * (figure.index() + 1), i);
      other.Add(figure, i, i);
    }
  }
  control::SessionFigures sum{};
  one.AddTo(sum);
  other.AddTo(sum);
  for (const control::Figure figure : control::kAllFigures) {
    for (size_t i = 0; i < figure.num_entries(); ++i) {
      EXPECT_EQ(sum.entries(figure)[i], 1000 * (figure.index() + 1) + i) << figure.row().name << " " << i;
    }
  }
}

TEST(FigureCounters, CountsPiecesAndTimes) {
  FigureCounters counters;
  EXPECT_EQ(counters.Add("sliced_launches"), 0u);
  EXPECT_EQ(counters.Add("sliced_launches"), 1u) << "what it was before";
  counters.Add("held_ns", std::chrono::microseconds(2));
  EXPECT_EQ(counters["sliced_launches"], 2u);
  EXPECT_EQ(counters["held_ns"], 2000u);
  EXPECT_EQ(counters["held_launches"], 0u);
}

TEST(FigureCounters, WhatIsSetIsNotAddedUp) {
  FigureCounters counters;
  for (const uint64_t value : {1, 1, 0, 1}) counters.Set("prefers_holding", value);
  EXPECT_EQ(counters["prefers_holding"], 1u);
  counters.Set("prefers_holding", 0);
  EXPECT_EQ(counters["prefers_holding"], 0u);
}

}  // namespace
}  // namespace tally::server
