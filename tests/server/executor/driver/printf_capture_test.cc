#include "server/executor/driver/printf_capture.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace tally::server {
namespace {

TEST(PrintfCaptureTest, TakesWhatWasPrintedAndGivesStdoutBack) {
  std::fflush(stdout);
  std::string taken;
  std::string large;
  {
    auto capture = PrintfCapture::Create();
    ASSERT_TRUE(capture) << capture.error().ToString();
    std::printf("hello from a kernel\n");
    taken = (*capture)->Take();
    // More than a pipe holds: the reader thread keeps the writer going.
    for (int i = 0; i < 40000; ++i) std::printf("block %d thread %d says something\n", i, i);
    large = (*capture)->Take();
    EXPECT_EQ((*capture)->Take(), "");
  }
  EXPECT_EQ(taken, "hello from a kernel\n");
  EXPECT_GT(large.size(), size_t{1} << 20);
  EXPECT_TRUE(large.ends_with("block 39999 thread 39999 says something\n"));
}

}  // namespace
}  // namespace tally::server
