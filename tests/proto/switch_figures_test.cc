#include "proto/control/switch_figures.h"

#include <gtest/gtest.h>

namespace tally::control {
namespace {

TEST(SwitchFigures, WhatIsNotWholeIsNotBelieved) {
  EXPECT_FALSE(ParseSwitchFigures(""));
  EXPECT_FALSE(ParseSwitchFigures("[]"));
  EXPECT_FALSE(ParseSwitchFigures(R"({"acts": true})"));
  EXPECT_FALSE(ParseSwitchFigures(R"({"acts": true, "p50_us": "1", "p99_us": 2, "own_p99_us": 3})"));
  const auto figures = ParseSwitchFigures(R"({"acts": "yes", "p50_us": 1, "p99_us": 2, "own_p99_us": 3})");
  ASSERT_TRUE(figures);
  EXPECT_FALSE(figures->acts);
}

}  // namespace
}  // namespace tally::control
