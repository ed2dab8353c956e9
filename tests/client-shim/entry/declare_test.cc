#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include "include/tally/segments.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

const tally_segment kIn = {reinterpret_cast<void*>(0x5000), 64, 1, 0};
const tally_segment kOut = {reinterpret_cast<void*>(0x9000), 16, 4, 256};

class Declare : public ::testing::Test {
 protected:
  void SetUp() override {
    ScriptKernel(&executor_);
    executor_.set_wanted(shm::kWantsDeclarations);
  }
  // The launches that reach the executor.
  std::vector<FakeRequest> Launches() {
    std::vector<FakeRequest> launches;
    for (const FakeRequest& request : executor_.requests()) {
      if (request.op == static_cast<uint16_t>(shm::Op::kLaunch)) launches.push_back(request);
    }
    return launches;
  }
  static shm::Launch HeadOf(const FakeRequest& launch) { return launch.Read<shm::Launch>(); }

  FakeExecutor executor_;
};

struct Program {
  CUfunction function = nullptr;

  int Start() {
    if (Begin() != 0) return 1;
    return GetKernel(&function);
  }
  CUresult Launch(unsigned threads = 32) const {
    int number = 1;
    void* pointer = nullptr;
    void* parameters[] = {&number, &pointer};
    return SHIM(cuLaunchKernel)(function, 1, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr);
  }
};

TEST_F(Declare, TheNextLaunchCarriesItAndNoOther) {
  EXPECT_EQ(RunInChild(executor_.socket_path(),
                       [] {
                         Program program;
                         REQUIRE(program.Start() == 0);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         REQUIRE(tally_segments(&kIn, 1, &kOut, 1) == 0);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);  // no launch
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         return SHIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 1;
                       }),
            0);
  const auto launches = Launches();
  ASSERT_EQ(launches.size(), 3u);
  for (const size_t i : {0, 2}) {
    EXPECT_EQ(HeadOf(launches[i]).flags, 0);
    EXPECT_EQ(launches[i].payload.size(), sizeof(shm::Launch) + 16);
  }
  const shm::Launch head = HeadOf(launches[1]);
  EXPECT_EQ(head.flags, shm::kLaunchDeclared);
  EXPECT_EQ(head.num_declared_reads, 1);
  EXPECT_EQ(head.num_declared_writes, 1);
  ASSERT_EQ(launches[1].payload.size(), sizeof(head) + 16 + 2 * sizeof(shm::DeclaredBox));
  const auto in = launches[1].Read<shm::DeclaredBox>(sizeof(head) + 16);
  const auto out = launches[1].Read<shm::DeclaredBox>(sizeof(head) + 16 + sizeof(in));
  EXPECT_EQ((std::array{in.address, in.row_bytes, in.rows, in.pitch}), (std::array<uint64_t, 4>{0x5000, 64, 1, 0}));
  EXPECT_EQ((std::array{out.address, out.row_bytes, out.rows, out.pitch}),
            (std::array<uint64_t, 4>{0x9000, 16, 4, 256}));
}

TEST_F(Declare, ItComesBehindThePaddedParameters) {
  EXPECT_EQ(RunInChild(executor_.socket_path(),
                       [] {
                         Program program;
                         REQUIRE(program.Start() == 0);
                         for (size_t size : {11, 12, 16, 0}) {
                           std::array<char, 16> bytes;
                           bytes.fill('x');
                           void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                                            &size, CU_LAUNCH_PARAM_END};
                           REQUIRE(tally_segments(&kIn, 1, nullptr, 0) == 0);
                           REQUIRE(SHIM(cuLaunchKernel)(program.function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                                                        extra) == CUDA_SUCCESS);
                         }
                         return SHIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 1;
                       }),
            0);
  const auto launches = Launches();
  ASSERT_EQ(launches.size(), 4u);
  for (const FakeRequest& launch : launches) {
    const shm::Launch head = HeadOf(launch);
    const size_t padded = sizeof(head) + (head.parameter_bytes + 7) / 8 * 8;
    EXPECT_EQ(head.flags, shm::kLaunchDeclared | shm::kLaunchExtra);
    ASSERT_EQ(launch.payload.size(), padded + sizeof(shm::DeclaredBox));
    for (size_t at = sizeof(head) + head.parameter_bytes; at < padded; ++at) EXPECT_EQ(launch.payload[at], std::byte{});
    EXPECT_EQ(launch.Read<shm::DeclaredBox>(padded).address, 0x5000u);
  }
}

TEST_F(Declare, TheLastWordCounts) {
  EXPECT_EQ(RunInChild(executor_.socket_path(),
                       [] {
                         Program program;
                         REQUIRE(program.Start() == 0);
                         REQUIRE(tally_segments(&kIn, 1, &kOut, 1) == 0 && tally_opaque() == 0);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         REQUIRE(tally_opaque() == 0 && tally_segments(nullptr, 0, nullptr, 0) == 0);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         return SHIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 1;
                       }),
            0);
  const auto launches = Launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(HeadOf(launches[0]).flags, shm::kLaunchOpaque);
  EXPECT_EQ(launches[0].payload.size(), sizeof(shm::Launch) + 16) << "what was declared before is gone";
  EXPECT_EQ(HeadOf(launches[1]).flags, shm::kLaunchDeclared) << "it touches nothing";
}

// Otherwise a launch that has nothing to do with it would have it.
TEST_F(Declare, ALaunchThatFailsHasHadIt) {
  EXPECT_EQ(RunInChild(executor_.socket_path(),
                       [] {
                         Program program;
                         REQUIRE(program.Start() == 0);
                         REQUIRE(tally_segments(&kIn, 1, nullptr, 0) == 0);
                         REQUIRE(program.Launch(4096) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         REQUIRE(tally_segments(&kIn, 1, nullptr, 0) == 0);
                         REQUIRE(SHIM(cuLaunchKernelEx)(nullptr, program.function, nullptr, nullptr) != CUDA_SUCCESS);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         REQUIRE(tally_segments(&kIn, 1, nullptr, 0) == 0);
                         REQUIRE(SHIM(cuLaunchCooperativeKernel)(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr) !=
                                 CUDA_SUCCESS);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         return SHIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 1;
                       }),
            0);
  const auto launches = Launches();
  EXPECT_EQ(launches.size(), 3u);
  for (const FakeRequest& launch : launches) EXPECT_EQ(HeadOf(launch).flags, 0);
}

TEST_F(Declare, NonsenseIsAnErrorAndDeclaresNothing) {
  EXPECT_EQ(RunInChild(executor_.socket_path(),
                       [] {
                         Program program;
                         REQUIRE(program.Start() == 0);
                         const auto is = [](int expected, const tally_segment* reads, size_t num_reads,
                                            const tally_segment* writes = nullptr, size_t num_writes = 0) {
                           return tally_segments(&kIn, 1, &kOut, 1) == 0 &&
                                  tally_segments(reads, num_reads, writes, num_writes) == expected;
                         };
                         const std::vector<tally_segment> many(1000000, kIn);
                         REQUIRE(is(E2BIG, many.data(), TALLY_MOST_SEGMENTS + 1));
                         REQUIRE(is(E2BIG, many.data(), many.size(), many.data(), many.size()));
                         REQUIRE(is(E2BIG, many.data(), 1, many.data(), TALLY_MOST_SEGMENTS));
                         REQUIRE(is(E2BIG, many.data(), 1, many.data(), SIZE_MAX));
                         REQUIRE(is(E2BIG, nullptr, SIZE_MAX));
                         REQUIRE(is(EINVAL, nullptr, 1));
                         REQUIRE(is(EINVAL, nullptr, 0, nullptr, 1));
                         for (const tally_segment& bad :
                              {tally_segment{reinterpret_cast<void*>(0x1000), SIZE_MAX, 1, 0},
                               tally_segment{reinterpret_cast<void*>(0x1000), 8, SIZE_MAX, 8},
                               tally_segment{reinterpret_cast<void*>(UINTPTR_MAX), 2, 1, 0},
                               tally_segment{reinterpret_cast<void*>(0x1000), 8, 3, SIZE_MAX / 2 + 1}}) {
                           REQUIRE(is(EINVAL, &bad, 1));
                           REQUIRE(is(EINVAL, &kIn, 1, &bad, 1));
                         }
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         const tally_segment nothing = {reinterpret_cast<void*>(UINTPTR_MAX), 0, SIZE_MAX, SIZE_MAX};
                         REQUIRE(tally_segments(many.data(), TALLY_MOST_SEGMENTS - 1, &nothing, 1) == 0);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         return SHIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 1;
                       }),
            0);
  const auto launches = Launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(HeadOf(launches[0]).flags, 0);
  EXPECT_EQ(HeadOf(launches[1]).num_declared_reads, TALLY_MOST_SEGMENTS - 1);
  EXPECT_EQ(HeadOf(launches[1]).num_declared_writes, 1);
}

TEST_F(Declare, EachThreadDeclaresItsOwnLaunches) {
  EXPECT_EQ(RunInChild(executor_.socket_path(),
                       [] {
                         Program program;
                         REQUIRE(program.Start() == 0);
                         int other = 1;
                         std::thread([&] {
                           CUcontext context = nullptr;
                           other = tally_segments(&kIn, 1, nullptr, 0);
                           if (SHIM(cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS) other = 2;
                         }).join();
                         REQUIRE(other == 0);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         return SHIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 1;
                       }),
            0);
  const auto launches = Launches();
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(HeadOf(launches[0]).flags, 0);
}

TEST_F(Declare, WithoutAWindowNothingIsSent) {
  executor_.set_wanted(shm::kWantsPtx);
  EXPECT_EQ(RunInChild(executor_.socket_path(),
                       [] {
                         if (tally_segments(&kIn, 1, &kOut, 1) != 0) return 1;  // before there is a session
                         Program program;
                         REQUIRE(program.Start() == 0);
                         REQUIRE(program.Launch() == CUDA_SUCCESS);
                         REQUIRE(tally_segments(&kIn, 1, &kOut, 1) == 0 && program.Launch() == CUDA_SUCCESS);
                         REQUIRE(tally_opaque() == 0 && program.Launch() == CUDA_SUCCESS);
                         return SHIM(cuCtxSynchronize)() == CUDA_SUCCESS ? 0 : 1;
                       }),
            0);
  const auto launches = Launches();
  ASSERT_EQ(launches.size(), 3u);
  for (const FakeRequest& launch : launches) EXPECT_EQ(HeadOf(launch).flags, 0);
}

}  // namespace
}  // namespace tally::client_shim
