#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

TEST(Printable, OnlyLettersOfAsciiStay) {
  EXPECT_EQ(Printable(" ~aZ0"), " ~aZ0");
  EXPECT_EQ(Printable("a\nb\x1b[31m\x7f\xc3\xa9"), "a?b?[31m???");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(Printable(""), "");
}

TEST(OneLine, KeepsLettersBeyondAscii) {
  EXPECT_EQ(OneLine("gr\xc3\xb6\xc3\x9f"
                    "e"),
            "gr\xc3\xb6\xc3\x9f"
            "e");
  EXPECT_EQ(OneLine("a\r\nb\tc\x7f\x1f~ "), "a??b?c??~ ");
}

TEST(Quoted, SaysThatItIsNotAll) {
  EXPECT_EQ(Quoted("abc", 3), "'abc'");
  EXPECT_EQ(Quoted("abcd", 3), "'abc...'");
  EXPECT_EQ(Quoted("a\nb", 8), "'a?b'");
  EXPECT_EQ(Quoted("", 8), "''");
}

}  // namespace
}  // namespace tally
