#include "server/executor/session/lost_context.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tally::server {
namespace {

TEST(LostContext, TheFirstErrorStaysAndIsToldOnce) {
  LostContext lost;
  std::vector<std::string> told;
  lost.Tell([&](CUresult error, const std::string& what) {
    EXPECT_EQ(lost.error(), error);  // whoever is told, and asks, knows it already
    told.push_back(what);
  });
  EXPECT_EQ(lost.error(), CUDA_SUCCESS);
  lost.Report(CUDA_ERROR_ILLEGAL_ADDRESS, "first");
  lost.Report(CUDA_ERROR_ASSERT, "second");
  EXPECT_EQ(lost.error(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(told, std::vector<std::string>{"first"});
}

}  // namespace
}  // namespace tally::server
