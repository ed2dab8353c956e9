#include "proto/control/window_figures.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "proto/control/window_mode.h"
#include "ptx-transforms/segments.h"

namespace tally::control {
namespace {

TEST(WindowFigures, EveryBarrierOfSegmentsHasAPlace) {
  for (const std::string_view code : ptx_transforms::BarrierCodes()) {
    EXPECT_EQ(kWindowBarriers[WindowBarrierOf(code)], code) << "counted as " << kWindowBarriers[WindowBarrierOf(code)];
  }
}

TEST(WindowFigures, WhatHasNoPlaceIsSomethingElse) {
  EXPECT_STREQ(kWindowBarriers[WindowBarrierOf("")], "other");
  EXPECT_STREQ(kWindowBarriers[WindowBarrierOf("volatile-ish")], "other");
  EXPECT_STREQ(kWindowBarriers[WindowBarrierOf("no-ptx")], "no-ptx");
  const std::set<std::string> names(std::begin(kWindowBarriers), std::end(kWindowBarriers));
  EXPECT_EQ(names.size(), kNumWindowBarriers) << "one twice";
}

TEST(WindowFigures, ClassesAreThoseOfSegmentsAndNone) {
  ASSERT_EQ(std::size(kWindowClasses), ptx_transforms::kNumSegmentClasses + 1);
  for (uint32_t i = 0; i < ptx_transforms::kNumSegmentClasses; ++i) {
    EXPECT_EQ(kWindowClasses[i], ptx_transforms::ClassName(static_cast<ptx_transforms::SegmentClass>(i)));
  }
  EXPECT_STREQ(kWindowClasses[kWindowClassNone], "none");
}

TEST(WindowMode, IsReadAndWrittenByName) {
  for (const char* name : kWindowModeNames) EXPECT_STREQ(NameOf(*ParseWindowMode(name)), name);
  EXPECT_EQ(ParseWindowMode("on"), WindowMode::kOn);
  EXPECT_EQ(ParseWindowMode("off"), WindowMode::kOff);
  for (const char* text : {"", "ON", "1", "shadow ", "onn"}) EXPECT_FALSE(ParseWindowMode(text)) << text;
  EXPECT_STREQ(NameOf(static_cast<WindowMode>(7)), "unknown");
}

}  // namespace
}  // namespace tally::control
