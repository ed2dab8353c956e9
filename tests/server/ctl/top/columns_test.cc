#include "server/ctl/top/columns.h"

#include <gtest/gtest.h>

namespace tally::cli {
namespace {

TopRow Row(uint64_t id, const char* tenant, std::optional<double> share) {
  TopRow row;
  row.session_ids = {id};
  row.tenant = tenant;
  row.busy_share = share;
  return row;
}

std::string Order(TopColumn by, bool is_reversed, std::vector<TopRow> rows) {
  SortRows(by, is_reversed, &rows);
  std::string ids;
  for (const TopRow& row : rows) ids += std::to_string(row.session_ids.front());
  return ids;
}

TEST(TopColumns, FiguresComeTheMostFirstAndWhatIsNotKnownLast) {
  const std::vector<TopRow> rows = {Row(1, "b", 0.1), Row(2, "a", {}), Row(3, "c", 0.5), Row(4, "a", 0.1)};
  EXPECT_EQ(Order(TopColumn::kBusy, false, rows), "3142");
  EXPECT_EQ(Order(TopColumn::kBusy, true, rows), "1432") << "what is not known stays last";
  EXPECT_EQ(Order(TopColumn::kTenant, false, rows), "2413");
  EXPECT_EQ(Order(TopColumn::kTenant, true, rows), "3124");
  EXPECT_EQ(Order(TopColumn::kSession, false, rows), "1234");
  EXPECT_EQ(Order(TopColumn::kSession, true, rows), "4321");
}

TEST(TopColumns, LatencyIsSortedByHowFarItIsFromWhatIsWanted) {
  std::vector<TopRow> rows = {Row(1, "a", {}), Row(2, "b", {}), Row(3, "c", {})};
  rows[0].objective = "p99=10ms", rows[0].observed_ns = 9'000'000;
  rows[1].objective = "p99=1ms", rows[1].observed_ns = 1'100'000;
  EXPECT_EQ(Order(TopColumn::kLatency, false, rows), "213");
}

TEST(TopColumns, EveryColumnSortsWithoutLosingRows) {
  std::vector<TopRow> rows;
  for (uint64_t id = 1; id < 30; ++id) {
    rows.push_back(Row(id, id % 3 == 0 ? "x" : "y", id % 4 == 0 ? std::nullopt : std::optional(0.1 * double(id % 5))));
    rows.back().is_high = id % 2 == 0;
    rows.back().pid = static_cast<int32_t>(id * 7 % 11);
  }
  for (size_t column = 0; column < kNumTopColumns; ++column) {
    for (const bool is_reversed : {false, true})
      EXPECT_EQ(Order(static_cast<TopColumn>(column), is_reversed, rows).size(), 9u + 2 * 20);
  }
}

TEST(TopColumns, CellsSayWhatIsNotKnown) {
  TopRow row = Row(7, "train", {});
  EXPECT_EQ(CellOf(TopColumn::kBusy, row), "-");
  EXPECT_EQ(CellOf(TopColumn::kRank, row), "-");
  EXPECT_EQ(CellOf(TopColumn::kLatency, row), "-");
  row.busy_share = 0.1234;
  row.objective = "p99=2ms";
  EXPECT_EQ(CellOf(TopColumn::kBusy, row), "12.3");
  EXPECT_EQ(CellOf(TopColumn::kLatency, row), "p99 ?/2ms");
  row.observed_ns = 1'854'000;
  EXPECT_EQ(CellOf(TopColumn::kLatency, row), "p99 1.85/2ms");
  row.objective = "p99=500us";
  EXPECT_EQ(CellOf(TopColumn::kLatency, row), "p99 1.9k/500us");
  row.is_stale = true;
  EXPECT_EQ(CellOf(TopColumn::kSession, row), "7?");
  row.session_ids = {7, 9};
  EXPECT_EQ(CellOf(TopColumn::kSession, row), "2 of?");
}

TEST(TopColumns, ANameMovesNoCursor) {
  EXPECT_EQ(CellOf(TopColumn::kTenant, Row(1, "a\x1b[2J\nb\xc3\xa4", {})), "a?[2J?b??");
}

TEST(FormatRate, HasThreeFiguresAndAUnit) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(0.44), "0.4");
  EXPECT_EQ(FormatRate(9.96), "10");
  EXPECT_EQ(FormatRate(999.4), "999");
  EXPECT_EQ(FormatRate(999.6), "1.0k");
  EXPECT_EQ(FormatRate(12'345), "12.3k");
  EXPECT_EQ(FormatRate(123'456), "123k");
  EXPECT_EQ(FormatRate(1.2e6), "1.2M");
  EXPECT_EQ(FormatRate(1e15), "1000000G");
}

}  // namespace
}  // namespace tally::cli
