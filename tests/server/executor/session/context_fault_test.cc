#include "server/executor/session/context_fault.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tally::server {
namespace {

TEST(ContextFault, TheFirstErrorStaysAndIsToldOnce) {
  ContextFault fault;
  std::vector<std::string> told;
  fault.Tell([&](CUresult error, const std::string& what) {
    EXPECT_EQ(fault.error(), error);  // whoever is told, and asks, knows it already
    told.push_back(what);
  });
  EXPECT_EQ(fault.error(), CUDA_SUCCESS);
  fault.Report(CUDA_ERROR_ILLEGAL_ADDRESS, "first");
  fault.Report(CUDA_ERROR_ASSERT, "second");
  EXPECT_EQ(fault.error(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(told, std::vector<std::string>{"first"});
}

}  // namespace
}  // namespace tally::server
