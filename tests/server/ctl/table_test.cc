#include "server/ctl/table.h"

#include <gtest/gtest.h>

namespace tally::cli {
namespace {

TEST(Table, AlignsNumbersToTheRightAndHasNoTrailingBlanks) {
  Table table({"ID", "NAME", "BYTES"});
  table.AddRow({"7", "resnet50", "1.0 KiB"});
  table.AddRow({"1234", "x", "0"});
  EXPECT_EQ(table.ToString(),
            "  ID  NAME        BYTES\n"
            "   7  resnet50  1.0 KiB\n"
            "1234  x               0\n");
}

TEST(Table, CutsAndLeavesOutWhereThereIsNoRoom) {
  Table table({"ID", "NAME", "BYTES"}, {{0}, {0, 4}, {1}});
  table.AddRow({"7", "resnet50", "1.0 KiB"});
  EXPECT_EQ(table.ToString(18), "ID  NAME     BYTES\n 7  resne  1.0 KiB\n");
  EXPECT_EQ(table.ToString(8), "ID  NAME\n 7  resn\n");
  EXPECT_EQ(table.ToString(3), "ID\n 7\n");
}

TEST(Table, OnlyAHeader) { EXPECT_EQ(Table({"A", "LONGER"}).ToString(), "A  LONGER\n"); }

TEST(FormatBytes, PicksTheUnitThatPeopleRead) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes((1ull << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(3ull << 30), "3.0 GiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16384.0 PiB");
}

TEST(FormatAge, PicksTheUnitThatPeopleRead) {
  constexpr unsigned long long kSecond = 1'000'000'000;
  EXPECT_EQ(FormatAge(59 * kSecond), "59s");
  EXPECT_EQ(FormatAge(252 * kSecond), "4m12s");
  EXPECT_EQ(FormatAge(7500 * kSecond), "2h05m");
  EXPECT_EQ(FormatAge(266400 * kSecond), "3d02h");
}

}  // namespace
}  // namespace tally::cli
