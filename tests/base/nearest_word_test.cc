#include "base/nearest_word.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

TEST(EditDistance, CountsWhatHasToBeDone) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("kernels", "kernels"), 0u);
  EXPECT_EQ(EditDistance("kernel", "kernels"), 1u);
  EXPECT_EQ(EditDistance("kernals", "kernels"), 1u);
  EXPECT_EQ(EditDistance("kenrels", "kernels"), 1u);  // neighbours exchanged
  EXPECT_EQ(EditDistance("ab", "ba"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("sitting", "kitten"), 3u);
}

TEST(NearestWord, IsNearOrNone) {
  const std::vector<std::string> words = {"ps", "executors", "set-weight", "set-level", "doctor"};
  EXPECT_EQ(NearestWord("executor", words), "executors");
  EXPECT_EQ(NearestWord("set-wieght", words), "set-weight");
  EXPECT_EQ(NearestWord("setlevel", words), "set-level");
  EXPECT_EQ(NearestWord("sp", words), "ps");
  EXPECT_EQ(NearestWord("frobnicate", words), "");
  EXPECT_EQ(NearestWord("", words), "");
  EXPECT_EQ(NearestWord("ps", {}), "");
}

TEST(NearestWord, TakesTheFirstOfEquals) { EXPECT_EQ(NearestWord("bat", {"cat", "hat"}), "cat"); }

}  // namespace
}  // namespace tally
