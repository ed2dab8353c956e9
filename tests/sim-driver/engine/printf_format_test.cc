#include "sim-driver/engine/printf_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace tally::sim_driver {
namespace {

class ListedArguments final : public PrintfArguments {
 public:
  explicit ListedArguments(std::vector<uint64_t> values) : values_(std::move(values)) {}
  bool Next(uint32_t bytes, uint64_t* value) override {
    if (next_ >= values_.size()) return false;
    *value = values_[next_++];
    if (bytes == 4) *value &= 0xffffffff;
    return true;
  }
  bool String(uint64_t, std::string* text) override {
    *text = "text";
    return true;
  }

 private:
  std::vector<uint64_t> values_;
  size_t next_ = 0;
};

std::string Printed(std::string_view format, std::vector<uint64_t> values) {
  ListedArguments arguments(std::move(values));
  std::string output;
  uint32_t count = 0;
  if (!FormatPrintf(format, arguments, &output, &count)) return "unreadable";
  return output;
}

TEST(PrintfFormatTest, Conversions) {
  EXPECT_EQ(Printed("%d %u %x %5d|%-5d|%05d %+d", {~0u, ~0u, 255, 42, 42, 42, 7}),
            "-1 4294967295 ff    42|42   |00042 +7");
  EXPECT_EQ(Printed("%lld %llx %zu", {~uint64_t{0}, uint64_t{1} << 40, 9}), "-1 10000000000 9");
  EXPECT_EQ(Printed("%f %.2e %g %8.3f", {std::bit_cast<uint64_t>(1.5), std::bit_cast<uint64_t>(12345.0),
                                         std::bit_cast<uint64_t>(0.25), std::bit_cast<uint64_t>(3.14159)}),
            "1.500000 1.23e+04 0.25    3.142");
  EXPECT_EQ(Printed("%s|%8s|%.2s|%c|%%|%hd|%hhu", {1, 1, 1, 'x', 65535, 257}), "text|    text|te|x|%|-1|1");
  EXPECT_EQ(Printed("%*d|%-*d|%.*f", {4, 1, 4, 2, 1, std::bit_cast<uint64_t>(2.25)}), "   1|2   |2.2");
}

TEST(PrintfFormatTest, WhatIsNoConversionStands) {
  EXPECT_EQ(Printed("100%! sure", {5}), "100%! sure");
  EXPECT_EQ(Printed("end %", {}), "end %");
  EXPECT_EQ(Printed("%n", {1}), "%n");
  EXPECT_EQ(Printed("%d", {}), "unreadable");
}

}  // namespace
}  // namespace tally::sim_driver
