#include <gtest/gtest.h>

#include <cstdint>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(ShimCalls, LaunchCarriesPackedParametersAndNoReplyIsAwaited) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         int number = 0x11223344;
                         void* pointer = reinterpret_cast<void*>(0x123456789ab);
                         void* parameters[] = {&number, &pointer};
                         REQUIRE(SHIM(cuLaunchKernel)(function, 3, 2, 1, 64, 2, 1, 128, nullptr, parameters, nullptr) ==
                                 CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  bool found = false;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op != static_cast<uint16_t>(shm::Op::kLaunch)) continue;
    found = true;
    const auto launch = request.Read<shm::Launch>();
    EXPECT_EQ(request.flags, 0);
    EXPECT_EQ(request.context, 0u);
    EXPECT_EQ(launch.function, kFunctionHandle);
    EXPECT_EQ(launch.stream, shm::kLegacyStream);
    EXPECT_EQ(launch.grid[0], 3u);
    EXPECT_EQ(launch.block[1], 2u);
    EXPECT_EQ(launch.shared_bytes, 128u);
    ASSERT_EQ(launch.parameter_bytes, 16u);
    EXPECT_EQ(request.Read<uint32_t>(sizeof(launch)), 0x11223344u);
    EXPECT_EQ(request.Read<uint32_t>(sizeof(launch) + 4), 0u);  // the hole is not what the ring held before
    EXPECT_EQ(request.Read<uint64_t>(sizeof(launch) + 8), 0x123456789abu);
  }
  EXPECT_TRUE(found);
}

TEST(ShimCalls, LaunchErrorsAreFoundAtOnce) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(
      RunInChild(
          executor.socket_path(),
          [] {
            if (Begin() != 0) return 1;
            CUfunction function = nullptr;
            if (GetKernel(&function) != 0) return 1;
            int number = 0;
            void* pointer = nullptr;
            void* parameters[] = {&number, &pointer};
            const auto launch = SHIM(cuLaunchKernel);
            REQUIRE(launch(function, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(function, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(function, 1, 1, 1, 1, 1, 1, 1 << 20, nullptr, parameters, nullptr) ==
                    CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_HANDLE);
            REQUIRE(launch(function, 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(0x1234), parameters, nullptr) ==
                    CUDA_ERROR_INVALID_HANDLE);
            return 0;
          }),
      0);
}

TEST(ShimCalls, PerThreadTwinMeansThePerThreadStream) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         int number = 0;
                         void* pointer = nullptr;
                         void* parameters[] = {&number, &pointer};
                         const auto twin = SHIM_VARIANT(cuLaunchKernel, "_ptsz");
                         REQUIRE(twin(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  for (const FakeRequest& request : executor.requests()) {
    if (request.op == static_cast<uint16_t>(shm::Op::kLaunch)) {
      EXPECT_EQ(request.Read<shm::Launch>().stream, shm::kPerThreadStream);
    }
  }
}

}  // namespace
}  // namespace tally::client_shim
