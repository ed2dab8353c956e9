#include "ptx-transforms/syntax/lexer.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace tally::ptx_transforms {
namespace {

// One letter per token and its text: "i:add d:.s32 ;".
std::string Tokens(std::string_view text) {
  Lexer lexer(text);
  std::string out;
  for (Token token = lexer.Next(); token.kind != TokenKind::kEnd; token = lexer.Next()) {
    if (!out.empty()) out += ' ';
    switch (token.kind) {
      case TokenKind::kIdentifier:
        out += "i:";
        break;
      case TokenKind::kDotted:
        out += "d:";
        break;
      case TokenKind::kInteger:
        out += "n:";
        break;
      case TokenKind::kFloat:
        out += "f:";
        break;
      case TokenKind::kString:
        out += "s:";
        break;
      case TokenKind::kBad:
        out += "BAD:";
        break;
      default:
        break;
    }
    out += text.substr(token.begin, token.end - token.begin);
  }
  return out;
}

TEST(Lexer, SplitsAnInstruction) {
  EXPECT_EQ(Tokens("@!%p1 ld.global.v4.f32\t{%f1,_},[%rd1+-16];"),
            "@ ! i:%p1 i:ld d:.global d:.v4 d:.f32 { i:%f1 , i:_ } , [ i:%rd1 + - n:16 ] ;");
  EXPECT_EQ(Tokens("$L__BB0_1:"), "i:$L__BB0_1 :");
  EXPECT_EQ(Tokens("cp.async.mbarrier::complete_tx::bytes.2d x"),
            "i:cp d:.async d:.mbarrier::complete_tx::bytes d:.2d i:x");
}

TEST(Lexer, KnowsNumbers) {
  EXPECT_EQ(Tokens("0 12 0x1F 0XabU 017 0b101 12U 1.5 2. 1e9 1.5E-3"),
            "n:0 n:12 n:0x1F n:0XabU n:017 n:0b101 n:12U f:1.5 f:2. f:1e9 f:1.5E-3");
  EXPECT_EQ(Tokens("0f3F800000 0F00000000 0d3FF0000000000000 0D0000000000000000"),
            "f:0f3F800000 f:0F00000000 f:0d3FF0000000000000 f:0D0000000000000000");
  EXPECT_EQ(Tokens("0f3F8 0d3FF 0x 0b2 12abc 0xG"), "BAD:0f3F8 BAD:0d3FF BAD:0x BAD:0b2 BAD:12abc BAD:0xG");
}

TEST(Lexer, KnowsOperatorsOfTwoCharacters) {
  EXPECT_EQ(Tokens("<<>>==!=<=>=&&||<>"), "<< >> == != <= >= && || < >");
  EXPECT_EQ(Tokens("a%b % c"), "i:a i:%b % i:c");
}

TEST(Lexer, SkipsCommentsAndPreprocessorLines) {
  EXPECT_EQ(Tokens("a // b ; c\nd /* e\n * f ** / */ g\n# 1 \"file\"\nh //"), "i:a i:d i:g i:h");
  EXPECT_EQ(Tokens("a / b"), "i:a / i:b");
  EXPECT_EQ(Tokens("a /* never ends"), "i:a BAD:/* never ends");
  EXPECT_EQ(Tokens("/*/ a */ b"), "i:b");
}

TEST(Lexer, KnowsStrings) {
  EXPECT_EQ(Tokens(R"("a" "b\"c" "")"), R"(s:"a" s:"b\"c" s:"")");
  EXPECT_EQ(Tokens("\"a\nb\""), "BAD:\"a i:b BAD:\"");
  EXPECT_EQ(Tokens("\"a\\\nb"), "BAD:\"a\\ i:b");
  EXPECT_EQ(Tokens("\"a\\"), "BAD:\"a\\");
}

TEST(Lexer, SaysWhatIsBad) {
  Lexer lexer("\x80`");
  EXPECT_EQ(lexer.Next().kind, TokenKind::kBad);
  EXPECT_STREQ(lexer.error(), "PTX text");
  EXPECT_EQ(lexer.Next().kind, TokenKind::kBad);
  EXPECT_EQ(lexer.Next().kind, TokenKind::kEnd);
  EXPECT_EQ(lexer.Next().kind, TokenKind::kEnd);
}

TEST(Lexer, CountsLinesAndLeadingSpace) {
  const std::string_view text = "a\n /* x\n y */ b\n\n\tc";
  Lexer lexer(text);
  const Token a = lexer.Next();
  const Token b = lexer.Next();
  const Token c = lexer.Next();
  EXPECT_EQ(a.position(), (SourcePosition{1, 1}));
  EXPECT_EQ(b.position(), (SourcePosition{3, 7}));
  EXPECT_EQ(c.position(), (SourcePosition{5, 2}));
  EXPECT_EQ(text.substr(b.leading, b.begin - b.leading), "\n /* x\n y */ ");
  lexer.RewindTo(b);
  const Token again = lexer.Next();
  EXPECT_EQ(again.leading, b.leading);
  EXPECT_EQ(again.position(), b.position());
  EXPECT_EQ(lexer.Next().position(), c.position());
}

}  // namespace
}  // namespace tally::ptx_transforms
