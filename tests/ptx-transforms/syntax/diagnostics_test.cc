// What the parser says about text that is wrong, and that hostile text costs no more than its length.
#include <algorithm>

#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Diagnostics, NameThePlaceAndWhatWasExpected) {
  EXPECT_EQ(ErrorOf(InKernel("  add.s32 %r1, %r2")), "ptx:6:1: expected ',' or ';' after an operand, found '}'");
  EXPECT_EQ(ErrorOf(InKernel("ld.global.u32 %r1, [%rd1;")), "ptx:5:25: expected ']' after the address, found ';'");
  EXPECT_EQ(ErrorOf(InKernel("mov.u32 %r1, %tid .x;")), "ptx:5:19: expected ',' or ';' after an operand, found '.x'");
  EXPECT_EQ(ErrorOf(InKernel("@ add;")), "ptx:5:6: expected an instruction, found ';'");
  EXPECT_EQ(ErrorOf(InKernel(".reg .b32 %r<x>;")), "ptx:5:14: expected a number of registers, found 'x'");
  EXPECT_EQ(ErrorOf(WithHeader(".global .align 3 .u32 x;")),
            "ptx:4:16: expected an alignment (a power of two), found '3'");
  EXPECT_EQ(ErrorOf(WithHeader(".global .u32 x")),
            "ptx:4:15: expected ';' after the declaration, found the end of the text");
  EXPECT_EQ(ErrorOf(WithHeader(".entry k() { ret;")),
            "ptx:4:18: expected '}' after the body, found the end of the text");
  EXPECT_EQ(ErrorOf(WithHeader("garbage")), "ptx:4:1: expected a directive at module scope, found 'garbage'");
}

TEST(Diagnostics, WantTheHeadOfAModule) {
  EXPECT_EQ(ErrorOf(""), "ptx:1:1: expected .version at the start of a PTX module, found the end of the text");
  EXPECT_EQ(ErrorOf(".target sm_90"), "ptx:1:1: expected .version at the start of a PTX module, found '.target'");
  EXPECT_EQ(ErrorOf(".version 8"), "ptx:1:10: expected a version such as 8.5, found '8'");
  EXPECT_THAT(ErrorOf(".version 8.5\n"), HasSubstr("expected .target in a PTX module"));
  EXPECT_THAT(ErrorOf(std::string("\x7F") + "ELF\x02\x01"), StartsWith("ptx:1:1: expected "));
}

TEST(Diagnostics, AreCollectedUpToALimit) {
  std::string statements;
  for (int i = 0; i < 100; ++i) statements += "add.s32 %r1 %r2;\n";
  const std::string errors = ErrorOf(InKernel(statements));
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 9);
  EXPECT_THAT(errors, HasSubstr("ptx:14:13: "));
  const Result<Module> kept = ParseModule(InKernel(statements));
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->warnings.size(), 10u);
  EXPECT_EQ(BodyOf(*kept).size(), 100u);
}

TEST(Diagnostics, DoNotRepeatHostileBytes) {
  const std::string message = ErrorOf(InKernel("add \x1b[31m;"));
  EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) { return c >= ' ' && c <= '~'; })) << message;
  EXPECT_LT(ErrorOf(InKernel("add " + std::string(100'000, 'x') + " y;")).size(), 200u);
}

TEST(Diagnostics, LexicalErrorsAreNeverKept) {
  for (const char* bad : {"add.s32 %r1, 0x;", "add.s32 `;", "/* open", "mov.b32 %r1, 0f12;", ".pragma \"open;\n"})
    EXPECT_FALSE(ParseModule(InKernel(bad))) << bad;
}

TEST(Limits, SizeOfTheText) {
  ParseOptions options;
  options.max_source_bytes = 100;
  EXPECT_EQ(ParseModule(std::string(101, ' '), options).error().code(), StatusCode::kResourceExhausted);
}

TEST(Limits, Nesting) {
  const auto nested = [](char open, char close, size_t depth) {
    return std::string(depth, open) + (open == '{' ? "" : "1") + std::string(depth, close);
  };
  MustParse(InKernel(nested('{', '}', 100)));
  EXPECT_THAT(ErrorOf(InKernel(nested('{', '}', 1'000'000))), HasSubstr("more than 128 brackets or braces are open"));
  EXPECT_THAT(ErrorOf(InKernel("op " + nested('{', '}', 1'000'000) + ";")), HasSubstr("more than 128"));
  EXPECT_THAT(ErrorOf(InKernel("op " + nested('[', ']', 1'000'000) + ";")), HasSubstr("more than 128"));
  EXPECT_THAT(ErrorOf(InKernel("op " + nested('(', ')', 1'000'000) + ";")), HasSubstr("more than 128"));
  EXPECT_THAT(ErrorOf(InKernel("call " + nested('(', ')', 1'000'000) + ";")), HasSubstr("more than 128"));
  EXPECT_THAT(ErrorOf(WithHeader(".global .u8 x = " + nested('{', '}', 1'000'000) + ";")), HasSubstr("more than 128"));
  EXPECT_FALSE(ParseModule(WithHeader(".future " + nested('{', '}', 1'000'000))));
  // Whatever the caller asks for, the stack is safe.
  ParseOptions options;
  options.max_nesting = ~size_t{0};
  EXPECT_FALSE(ParseModule(InKernel(nested('{', '}', 1'000'000)), options));
  EXPECT_FALSE(ParseModule(InKernel("op " + nested('(', ')', 1'000'000) + ";"), options));
}

// Each is a few megabytes of the same trouble: anything quadratic would run into the test's time limit.
TEST(Limits, TimeIsLinear) {
  const auto repeat = [](std::string_view piece, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += piece;
    return text;
  };
  constexpr size_t kBytes = 4'000'000;
  const auto parses = [](const std::string& text) { return static_cast<bool>(ParseModule(text)); };
  EXPECT_TRUE(parses(InKernel(repeat("a:", kBytes))));
  EXPECT_TRUE(parses(InKernel(repeat("add x y;", kBytes))));
  EXPECT_TRUE(parses(InKernel(repeat(".unknown {", 20'000) + repeat("}", 20'000))) == false);
  EXPECT_TRUE(parses(InKernel(repeat("{.reg .b32 a;}", kBytes))));
  EXPECT_TRUE(parses(InKernel(repeat(".reg .b32 a1<9>;", kBytes))));
  EXPECT_TRUE(parses(InKernel(repeat(".reg .b32 a<9>; op b" + std::string(2000, '1') + ";", kBytes))));
  EXPECT_TRUE(parses(WithHeader(repeat(".global .u32 x;", kBytes))));
  EXPECT_TRUE(parses(WithHeader(".global .u8 x[] = {" + repeat("1,", kBytes) + "1};")));
  EXPECT_FALSE(parses(InKernel("op " + repeat("{a,", kBytes) + ";")));
  EXPECT_FALSE(parses(InKernel(repeat("add (", kBytes))));
  EXPECT_FALSE(parses(InKernel(repeat("add {;", kBytes))));
  EXPECT_FALSE(parses(InKernel(repeat("/* ", kBytes))));
  EXPECT_FALSE(parses(InKernel(repeat("\"\n", kBytes))));
  EXPECT_FALSE(parses(WithHeader(repeat(".x { ", kBytes))));
  EXPECT_FALSE(parses(repeat("}", kBytes)));
}

}  // namespace
}  // namespace tally::ptx_transforms
