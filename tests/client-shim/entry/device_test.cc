#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(ShimCalls, DevicesAreTheVisibleOnes) {
  FakeExecutor executor;
  executor.set_devices({FakeExecutor::MakeDevice(0), FakeExecutor::MakeDevice(1)});
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
                         REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
                         int count = 0;
                         REQUIRE(SHIM(cuDeviceGetCount)(&count) == CUDA_SUCCESS && count == 1);
                         char name[64];
                         REQUIRE(SHIM(cuDeviceGetName)(name, sizeof(name), 0) == CUDA_SUCCESS);
                         REQUIRE(std::strcmp(name, "Fake 1") == 0);
                         REQUIRE(SHIM(cuDeviceGetName)(name, sizeof(name), 1) == CUDA_ERROR_INVALID_DEVICE);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
