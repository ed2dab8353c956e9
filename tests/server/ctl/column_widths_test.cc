#include "server/ctl/column_widths.h"

#include <gtest/gtest.h>

#include <random>

namespace tally::cli {
namespace {

using Widths = std::vector<size_t>;

TEST(FitColumns, GivesEachWhatItNeedsWhereThereIsRoom) {
  const ColumnNeed needs[] = {{7, 7, 0}, {20, 8, 0}, {5, 5, 3}};
  EXPECT_EQ(FitColumns(needs, 1, 34), (Widths{7, 20, 5}));
  EXPECT_EQ(FitColumns(needs, 1, 1000), (Widths{7, 20, 5}));
}

TEST(FitColumns, CutsBeforeItLeavesOut) {
  const ColumnNeed needs[] = {{7, 7, 0}, {20, 8, 0}, {5, 5, 3}};
  EXPECT_EQ(FitColumns(needs, 1, 25), (Widths{7, 11, 5}));
  EXPECT_EQ(FitColumns(needs, 1, 22), (Widths{7, 8, 5}));
}

TEST(FitColumns, LeavesOutTheHighestRankFirstAndTheLastOfARank) {
  const ColumnNeed needs[] = {{4, 4, 0}, {4, 4, 2}, {4, 4, 5}, {4, 4, 2}};
  EXPECT_EQ(FitColumns(needs, 1, 19), (Widths{4, 4, 4, 4}));
  EXPECT_EQ(FitColumns(needs, 1, 18), (Widths{4, 4, 0, 4}));
  EXPECT_EQ(FitColumns(needs, 1, 13), (Widths{4, 4, 0, 0}));
  EXPECT_EQ(FitColumns(needs, 1, 8), (Widths{4, 0, 0, 0}));
}

TEST(FitColumns, KeepsWhatMustStayHoweverNarrow) {
  const ColumnNeed needs[] = {{7, 7, 0}, {20, 8, 0}, {5, 5, 1}};
  EXPECT_EQ(FitColumns(needs, 2, 0), (Widths{7, 8, 0}));
  EXPECT_EQ(FitColumns({}, 2, 10), Widths{});
}

TEST(FitColumns, NeverTakesMoreThanThereIsUnlessItMust) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<ColumnNeed> needs(random() % 8);
    size_t must = 0;
    for (ColumnNeed& need : needs) {
      need.width = 1 + random() % 30;
      need.least = 1 + random() % need.width;
      need.rank = static_cast<int>(random() % 4);
      if (need.rank == 0) must += need.least + 1;
    }
    const size_t available = random() % 120;
    size_t sum = 0;
    const auto widths = FitColumns(needs, 1, available);
    ASSERT_EQ(widths.size(), needs.size());
    for (size_t i = 0; i < widths.size(); ++i) {
      sum += widths[i] == 0 ? 0 : widths[i] + 1;
      EXPECT_LE(widths[i], needs[i].width);
      EXPECT_GE(widths[i], needs[i].rank == 0 ? needs[i].least : 0);
    }
    EXPECT_LE(sum, std::max(available + 1, must)) << "available " << available;
  }
}

}  // namespace
}  // namespace tally::cli
