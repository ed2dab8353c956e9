#include "scheduler/window/box.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace tally::scheduler {
namespace {

constexpr uint64_t kHighest = UINT64_MAX;

using Bytes = std::bitset<256>;

struct Asked {
  uint64_t address, row_bytes, rows, pitch;
};

Bytes BytesOf(const Asked& asked) {
  Bytes bytes;
  for (uint64_t row = 0; row < asked.rows; ++row) {
    for (uint64_t i = 0; i < asked.row_bytes; ++i) bytes.set(asked.address + row * asked.pitch + i);
  }
  return bytes;
}
Box BoxOf(const Asked& asked) { return *Box::Rows(asked.address, asked.row_bytes, asked.rows, asked.pitch); }

TEST(Box, KeepsWhatItWasMadeOf) {
  const Box box = *Box::Rows(1000, 24, 5, 100);
  EXPECT_EQ(box.begin(), 1000u);
  EXPECT_EQ(box.end(), 1424u);
  EXPECT_EQ(box.rows(), 5u);
  EXPECT_EQ(box.row_bytes(), 24u);
  EXPECT_FALSE(box.is_range());
}

TEST(Box, RowsThatTouchAreARange) {
  EXPECT_EQ(Box::Rows(1000, 64, 4, 64), Box::Range(1000, 256));
  EXPECT_EQ(Box::Rows(1000, 64, 4, 16), Box::Range(1000, 112));
  EXPECT_EQ(Box::Rows(1000, 64, 4, 0), Box::Range(1000, 64));
  EXPECT_EQ(Box::Rows(1000, 64, 1, 4096), Box::Range(1000, 64));
  EXPECT_EQ(Box::Range(1000, 64)->rows(), 1u);
}

TEST(Box, RefusesWhatHasNoBytes) {
  EXPECT_FALSE(Box::Range(1000, 0).has_value());
  EXPECT_FALSE(Box::Rows(1000, 0, 4, 64).has_value());
  EXPECT_FALSE(Box::Rows(1000, 64, 0, 64).has_value());
}

TEST(Box, RefusesWhatWraps) {
  EXPECT_FALSE(Box::Range(kHighest, 1).has_value());
  EXPECT_FALSE(Box::Range(kHighest - 9, 11).has_value());
  EXPECT_TRUE(Box::Range(kHighest - 9, 9).has_value());
  EXPECT_FALSE(Box::Range(1, kHighest).has_value());
  // rows * pitch is 2^64, which is 0.
  EXPECT_FALSE(Box::Rows(4096, 8, (uint64_t{1} << 32) + 1, uint64_t{1} << 32).has_value());
  EXPECT_FALSE(Box::Rows(4096, 8, kHighest, kHighest).has_value());
  EXPECT_FALSE(Box::Rows(4096, kHighest - 10, 2, 4096).has_value());
  EXPECT_FALSE(Box::Rows(kHighest - 4096, 8, 3, 4096).has_value());
}

TEST(Box, OfTheHighestAddressesOverlaps) {
  const Box low = *Box::Rows(0, 8, 2, kHighest - 8);
  const Box high = *Box::Range(kHighest - 4, 4);
  EXPECT_TRUE(low.Overlaps(high));
  EXPECT_TRUE(high.Overlaps(low));
  EXPECT_FALSE(low.Overlaps(*Box::Range(8, kHighest - 16)));
}

TEST(Box, TilesOfAMatrixDoNotOverlap) {
  // 8 columns of 16 bytes, 16 rows: tiles of 4 rows and 2 columns.
  const auto tile = [](uint64_t row, uint64_t column) {
    return *Box::Rows(4096 + row * 4 * 128 + column * 32, 32, 4, 128);
  };
  for (uint64_t a = 0; a < 16; ++a) {
    for (uint64_t b = 0; b < 16; ++b) EXPECT_EQ(tile(a / 4, a % 4).Overlaps(tile(b / 4, b % 4)), a == b);
  }
  const Box row = *Box::Range(4096 + 5 * 128, 128);
  EXPECT_TRUE(row.Overlaps(tile(1, 0)));
  EXPECT_TRUE(row.Overlaps(tile(1, 3)));
  EXPECT_FALSE(row.Overlaps(tile(0, 3)));
  // A row may go on in the next line of the other's pitch.
  EXPECT_TRUE(Box::Rows(4096 + 112, 32, 2, 128)->Overlaps(*Box::Rows(4096, 8, 2, 128)));
  EXPECT_FALSE(Box::Rows(4096 + 112, 32, 2, 128)->Overlaps(*Box::Rows(4096, 8, 1, 128)));
}

// Against sets of bytes: exact where promised, and elsewhere never no where it is yes.
TEST(Box, AgreesWithItsBytes) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return random() % n; };
  uint32_t num_overlapping = 0, num_covering = 0, num_doubtful = 0, num_wrong_doubts = 0;
  for (int i = 0; i < 300'000; ++i) {
    const uint32_t pitch = 1 + below(20);
    const auto any = [&] {
      Asked asked{.address = below(60), .row_bytes = 1 + below(12), .rows = 1 + below(5), .pitch = pitch};
      if (below(8) == 0) asked.pitch = below(20);
      if (below(4) == 0) asked = {.address = asked.address, .row_bytes = 1 + below(60), .rows = 1, .pitch = pitch};
      return asked;
    };
    const Asked a_asked = any(), b_asked = any();
    const Box a = BoxOf(a_asked), b = BoxOf(b_asked);
    const Bytes a_bytes = BytesOf(a_asked), b_bytes = BytesOf(b_asked);
    const bool overlaps = (a_bytes & b_bytes).any();
    const bool covers = (a_bytes & b_bytes) == b_bytes;
    ASSERT_EQ(a.Overlaps(b), b.Overlaps(a));
    if (a.is_range() || b.is_range() || a.pitch() == b.pitch()) {
      ASSERT_EQ(a.Overlaps(b), overlaps) << a.begin() << " " << a.end() << " " << b.begin() << " " << b.end();
      ASSERT_EQ(a.Covers(b), covers);
    } else {
      ASSERT_GE(a.Overlaps(b), overlaps);
      ASSERT_LE(a.Covers(b), covers);
      ++num_doubtful;
      num_wrong_doubts += a.Overlaps(b) != overlaps;
    }
    num_overlapping += overlaps;
    num_covering += covers;
  }
  EXPECT_GT(num_overlapping, 10'000u);
  EXPECT_GT(num_covering, 1'000u);
  EXPECT_GT(num_doubtful, 5'000u);
  EXPECT_LT(num_wrong_doubts, num_doubtful / 2);
}

}  // namespace
}  // namespace tally::scheduler
