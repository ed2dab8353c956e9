#include <gtest/gtest.h>

#include <cstdint>

#include "proto/driver/generated/wire_ops.h"
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

// Natively a block of too many registers is out of resources, one that __launch_bounds__ forbids an invalid value.
TEST(ShimCalls, RegistersAreTheReasonOnlyWhereTheyAre) {
  for (const int registers : {16, 255}) {
    FakeExecutor executor;
    ScriptKernel(&executor);
    executor.On(shm::Op::kGetFunction, [&](const FakeRequest&, FakeReply* reply) {
      shm::KernelDescription description{};
      description.handle = kFunctionHandle;
      description.attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 256;
      description.attribute[CU_FUNC_ATTRIBUTE_NUM_REGS] = registers;
      description.attribute_valid = 1u << CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK | 1u << CU_FUNC_ATTRIBUTE_NUM_REGS;
      reply->Append(description);
    });
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [registers] {
                           if (Begin() != 0) return 1;
                           CUfunction function = nullptr;
                           if (GetKernel(&function) != 0) return 1;
                           const auto launch = [&](unsigned threads) {
                             return SHIM(cuLaunchKernel)(function, 1, 1, 1, threads, 1, 1, 0, nullptr, nullptr,
                                                         nullptr);
                           };
                           REQUIRE(launch(256) == CUDA_SUCCESS);
                           REQUIRE(launch(1024) ==
                                   (registers == 255 ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_ERROR_INVALID_VALUE));
                           return 0;
                         }),
              0)
        << registers;
  }
}

// Its value may point at something that is then not carried.
TEST(ShimCalls, ALaunchAttributeThatNobodyKnowsIsRefused) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         LaunchWithAttribute arguments;
                         const auto launch = [&](unsigned id) {
                           arguments.attribute.id = static_cast<CUlaunchAttributeID>(id);
                           return arguments.Launch(function);
                         };
                         for (const unsigned id : {40u, 63u, 64u, 64u + CU_LAUNCH_ATTRIBUTE_PRIORITY}) {
                           REQUIRE(launch(id) == CUDA_ERROR_NOT_SUPPORTED);
                         }
                         REQUIRE(launch(CU_LAUNCH_ATTRIBUTE_PRIORITY) == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
}

TEST(ShimCalls, ACooperativeGridIsTooLargeInWhicheverDirection) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  executor.On(kOp_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
              [](const FakeRequest&, FakeReply* reply) { reply->Append(uint64_t{1}); });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         int number = 0, multiprocessors = 0;
                         void* pointer = nullptr;
                         void* parameters[] = {&number, &pointer};
                         REQUIRE(SHIM(cuDeviceGetAttribute)(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                                            0) == CUDA_SUCCESS);
                         const auto most = static_cast<unsigned>(multiprocessors);
                         const auto launch = [&](unsigned x, unsigned y, unsigned z) {
                           return SHIM(cuLaunchCooperativeKernel)(function, x, y, z, 32, 1, 1, 0, nullptr, parameters);
                         };
                         REQUIRE(launch(most, 1, 1) == CUDA_SUCCESS);
                         REQUIRE(launch(1, most, 1) == CUDA_SUCCESS);
                         REQUIRE(launch(most + 1, 1, 1) == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
                         REQUIRE(launch(1, most + 1, 1) == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
                         REQUIRE(launch(2, 1, most) == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
