#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "proto/driver/generated/wire_ops.h"
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

// The executor counts all of the machine's.
TEST(ShimCalls, CallsNameTheExecutorsDeviceNotTheProgramsNumber) {
  FakeExecutor executor;
  executor.set_devices({FakeExecutor::MakeDevice(0), FakeExecutor::MakeDevice(1)});
  executor.On(kOp_cuDeviceGetDefaultMemPool, [](const FakeRequest& request, FakeReply* reply) {
    reply->result = request.Read<uint64_t>() == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    reply->Append(shm::MakeHandle(shm::HandleKind::kMemPool, 0, true, 1));
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
                         REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
                         CUmemoryPool pool = nullptr;
                         REQUIRE(SHIM(cuDeviceGetDefaultMemPool)(&pool, 0) == CUDA_SUCCESS && pool != nullptr);
                         REQUIRE(SHIM(cuDeviceGetDefaultMemPool)(&pool, 1) == CUDA_ERROR_INVALID_DEVICE);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
