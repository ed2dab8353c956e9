#include "ptx-transforms/syntax/constant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace tally::ptx_transforms {
namespace {

int64_t Fold(std::string_view text) {
  TokenStream tokens(text, 50);
  Constant constant;
  EXPECT_TRUE(ParseConstant(tokens, constant)) << text;
  EXPECT_EQ(tokens.current().kind, TokenKind::kEnd) << text;
  EXPECT_EQ(constant.kind, Constant::Kind::kInteger) << text;
  return static_cast<int64_t>(constant.bits);
}

std::string Failure(std::string_view text) {
  TokenStream tokens(text, 50);
  Constant constant;
  return ParseConstant(tokens, constant) ? "parsed" : tokens.TakeFailure().message;
}

TEST(Constant, FoldsWithThePrecedenceOfC) {
  EXPECT_EQ(Fold("1 + 2 * 3"), 7);
  EXPECT_EQ(Fold("(1 + 2) * 3"), 9);
  EXPECT_EQ(Fold("10 - 4 - 3"), 3);
  EXPECT_EQ(Fold("1 << 4 | 1 << 2 & 6 ^ 3"), (1 << 4) | (((1 << 2) & 6) ^ 3));
  EXPECT_EQ(Fold("-7 / 2"), -3);
  EXPECT_EQ(Fold("-7 % 4"), -3);
  EXPECT_EQ(Fold("- - -5"), -5);
  EXPECT_EQ(Fold("~0 & 0xFF"), 255);
  EXPECT_EQ(Fold("!5 + !0"), 1);
  EXPECT_EQ(Fold("1 < 2 && 2 >= 3 || 4 != 5"), 1);
  EXPECT_EQ(Fold("0 ? 1 : 1 ? 2 : 3"), 2);
  EXPECT_EQ(Fold("WARP_SZ * 2"), 64);
  EXPECT_EQ(Fold("-16 >> 2"), -4);
}

TEST(Constant, UnsignedIsContagious) {
  EXPECT_EQ(Fold("-1 > 0U"), 1);
  EXPECT_EQ(Fold("-1 > 0"), 0);
  EXPECT_EQ(Fold("(.u64) -16 >> 60"), 15);
  EXPECT_EQ(Fold("(.s64) 0xFFFFFFFFFFFFFFF0 >> 2"), -4);
  EXPECT_EQ(Fold("0xFFFFFFFFFFFFFFFF / 2"), INT64_MAX);
}

TEST(Constant, HasNoUndefinedCorners) {
  EXPECT_EQ(Fold("(-9223372036854775807 - 1) / -1"), INT64_MIN);
  EXPECT_EQ(Fold("(-9223372036854775807 - 1) % -1"), 0);
  EXPECT_EQ(Fold("9223372036854775807 + 1"), INT64_MIN);
  EXPECT_EQ(Fold("1 << 64"), 0);
  EXPECT_EQ(Fold("-1 >> 100"), -1);
  EXPECT_EQ(Fold("(.u64) -1 >> 64"), 0);
  EXPECT_EQ(Fold("1 << -1"), 0);
}

TEST(Constant, KeepsTheBitsOfFloats) {
  const auto bits = [](std::string_view text) {
    TokenStream tokens(text, 50);
    Constant constant;
    EXPECT_TRUE(ParseConstant(tokens, constant)) << text;
    return constant.bits;
  };
  EXPECT_EQ(bits("0f7FC12345"), 0x7FC12345u);
  EXPECT_EQ(bits("-0f3F800000"), 0xBF800000u);
  EXPECT_EQ(bits("0d7FF0000000000001"), 0x7FF0000000000001u);
  EXPECT_EQ(bits("-1.5"), std::bit_cast<uint64_t>(-1.5));
  EXPECT_EQ(bits("1e999"), std::bit_cast<uint64_t>(HUGE_VAL));
}

TEST(Constant, RefusesNonsense) {
  EXPECT_EQ(Failure("1 / 0"), "division by zero in a constant expression");
  EXPECT_EQ(Failure("5 % (3 - 3)"), "division by zero in a constant expression");
  EXPECT_EQ(Failure("1.5 + 2"), "expected integers around an operator of a constant expression");
  EXPECT_EQ(Failure("1 +"), "expected a constant, found the end of the text");
  EXPECT_EQ(Failure("(1"), "expected ')' after the constant expression, found the end of the text");
  EXPECT_EQ(Failure("18446744073709551616"), "expected an integer of at most 64 bits, found '18446744073709551616'");
  EXPECT_EQ(Failure("(.f32) 1"), "expected .s64 or .u64, found '.f32'");
  EXPECT_EQ(Failure("089"), "expected an integer of at most 64 bits, found '089'");
  EXPECT_EQ(Failure("~1.5"), "expected an integer, found the end of the text");
}

TEST(Constant, BoundsItsDepth) {
  EXPECT_EQ(Failure(std::string(100'000, '(') + "1"), "more than 50 brackets or braces are open");
  EXPECT_EQ(Failure(std::string(100'000, '~') + "1"), "more than 50 brackets or braces are open");
  EXPECT_EQ(Fold(std::string(100'000, '-') + "1"), 1);
  std::string conditions;
  for (int i = 0; i < 1000; ++i) conditions += "1?";
  EXPECT_EQ(Failure(conditions + "1"), "more than 50 brackets or braces are open");
}

}  // namespace
}  // namespace tally::ptx_transforms
