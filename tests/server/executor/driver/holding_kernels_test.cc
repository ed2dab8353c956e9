#include "server/executor/driver/holding_kernels.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/server/executor/driver/held_gpu.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr HoldingKernels::Queue kQueue{32, microseconds(10)};

class HoldingKernelsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(kernels_.Load(), CUDA_SUCCESS); }
  const DriverTable table_ = HeldGpu::Table();
  HoldingKernels kernels_{table_};
};

TEST_F(HoldingKernelsTest, TheQueueIsFilledUpAsItEnds) {
  kernels_.Keep(kQueue);
  kernels_.Keep(kQueue);
  EXPECT_EQ(HeldGpu::num_launched, 32u);
  EXPECT_EQ(HeldGpu::each_ns, 10'000u);
  HeldGpu::End(5);
  kernels_.Keep(kQueue);
  EXPECT_EQ(HeldGpu::num_launched, 37u);
  EXPECT_FALSE(HeldGpu::IsReleased());
}

// What is queued anew must not end by the last release; and all of it is needed, whatever is left of before.
TEST_F(HoldingKernelsTest, AReleaseEndsWhatIsQueuedAndNothingLater) {
  kernels_.Release();
  EXPECT_FALSE(kernels_.is_holding());
  kernels_.Keep(kQueue);
  EXPECT_FALSE(HeldGpu::IsReleased());
  EXPECT_TRUE(kernels_.is_holding());
  kernels_.Release();
  EXPECT_TRUE(HeldGpu::IsReleased());
  EXPECT_FALSE(kernels_.is_holding());
  kernels_.Keep(kQueue);
  EXPECT_FALSE(HeldGpu::IsReleased());
  EXPECT_EQ(HeldGpu::num_launched, 64u);
}

// Each finds its order where it looks; whoever has not ended still reads its own.
TEST_F(HoldingKernelsTest, MoreThanThereAreOrdersForAreNeverQueued) {
  for (int i = 0; i < 10; ++i) {
    kernels_.Keep({48, microseconds(10)});
    kernels_.Release();
  }
  EXPECT_EQ(HeldGpu::num_launched, 128u);
  HeldGpu::End(100);
  kernels_.Keep({48, microseconds(20)});
  EXPECT_EQ(HeldGpu::num_launched, 176u);
  EXPECT_EQ(HeldGpu::each_ns, 20'000u);
  EXPECT_FALSE(HeldGpu::IsReleased());
}

// Behind one that runs another must wait, or the GPU turns away; and a long time is not thousands of kernels.
TEST_F(HoldingKernelsTest, ATimeIsSharedByTwoAtLeastAndByFew) {
  for (const nanoseconds duration : {nanoseconds(1), nanoseconds(microseconds(30)), nanoseconds(microseconds(500)),
                                     nanoseconds(std::chrono::milliseconds(20))}) {
    const uint32_t before = HeldGpu::num_launched;
    kernels_.Hold(duration);
    const uint32_t num = HeldGpu::num_launched - before;
    EXPECT_GE(num, 2u);
    EXPECT_LE(num, 48u);
    EXPECT_GE(num * HeldGpu::each_ns, static_cast<uint64_t>(duration.count()));
    EXPECT_LE(num * HeldGpu::each_ns, static_cast<uint64_t>(duration.count()) + 2 * num);
    EXPECT_FALSE(HeldGpu::IsReleased());
  }
}

// Otherwise what was held for longer would go on after the time that was said last.
TEST_F(HoldingKernelsTest, AnotherTimeEndsTheOneBefore) {
  kernels_.Hold(microseconds(900));
  const uint32_t first = HeldGpu::ticket;
  kernels_.Hold(microseconds(100));
  EXPECT_EQ(HeldGpu::Released(), first);
  EXPECT_NE(HeldGpu::ticket, first);
}

TEST_F(HoldingKernelsTest, AContextThatIsLostIsNotAskedAgain) {
  HeldGpu::result = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(kernels_.Keep(kQueue), CUDA_ERROR_ILLEGAL_ADDRESS);
  HeldGpu::result = CUDA_SUCCESS;
  EXPECT_EQ(kernels_.Keep(kQueue), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(HeldGpu::num_launched, 0u);
  EXPECT_FALSE(kernels_.is_holding()) << "a gap would count as held";
}

TEST(HoldingKernelsEndTest, ReleasesBeforeItWaits) {
  const DriverTable table = HeldGpu::Table();
  {
    HoldingKernels kernels(table);
    ASSERT_EQ(kernels.Load(), CUDA_SUCCESS);
    kernels.Keep(kQueue);
  }
  EXPECT_TRUE(HeldGpu::was_released_at_end);
}

TEST(HoldingKernelsEndTest, WhatCannotBeLoadedHoldsNothing) {
  const DriverTable table = HeldGpu::Table();
  HoldingKernels kernels(table);
  HeldGpu::result = CUDA_ERROR_NO_BINARY_FOR_GPU;
  EXPECT_EQ(kernels.Load(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  HeldGpu::result = CUDA_SUCCESS;
  kernels.Keep(kQueue);
  EXPECT_FALSE(kernels.is_holding());
  EXPECT_EQ(HeldGpu::num_launched, 0u);

  DriverTable poor = table;
  poor.cuMemHostGetDevicePointer_v2 = nullptr;
  HoldingKernels none(poor);
  EXPECT_EQ(none.Load(), CUDA_ERROR_NOT_SUPPORTED);
  none.Keep(kQueue);
  none.Release();
  EXPECT_FALSE(none.is_holding());
}

// On the software GPU; what does not end hangs.
class HoldingKernelsOnGpuTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    table_ = driver_;
    launch = driver_.cuGraphLaunch;
    table_.cuGraphLaunch = [](CUgraphExec graph, CUstream stream) {
      ++num_launched;
      return launch(graph, stream);
    };
    num_launched = 0;
  }
  DriverTable table_{};
  static inline decltype(DriverTable::cuGraphLaunch) launch;
  static inline int num_launched;
};

TEST_F(HoldingKernelsOnGpuTest, LastsUntilItIsReleased) {
  HoldingKernels kernels(table_);
  ASSERT_EQ(kernels.Load(), CUDA_SUCCESS);
  ASSERT_EQ(kernels.Keep({1, std::chrono::hours(1)}), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // by itself it ends in an hour
  EXPECT_EQ(kernels.num_left(), 1u);
  kernels.Release();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(kernels.Keep({4, std::chrono::hours(1)}), CUDA_SUCCESS);
    ASSERT_EQ(kernels.Keep({4, std::chrono::hours(1)}), CUDA_SUCCESS);
    kernels.Release();
  }
  EXPECT_EQ(num_launched, 13);
}

// Those of before end though they would last, and the later ones though those of before were released.
TEST_F(HoldingKernelsOnGpuTest, EachFindsItsOwnOrder) {
  HoldingKernels kernels(table_);
  ASSERT_EQ(kernels.Load(), CUDA_SUCCESS);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(kernels.Keep({3, std::chrono::hours(1)}), CUDA_SUCCESS);
    kernels.Release();
    ASSERT_EQ(kernels.Keep({2, microseconds(1)}), CUDA_SUCCESS);
    while (kernels.num_left() != 0) std::this_thread::yield();
    EXPECT_TRUE(kernels.is_holding());
    kernels.Release();
  }
  EXPECT_EQ(num_launched, 500);
}

TEST_F(HoldingKernelsOnGpuTest, EndsByItselfAndIsFilledUp) {
  HoldingKernels kernels(table_);
  ASSERT_EQ(kernels.Load(), CUDA_SUCCESS);
  while (num_launched < 20) ASSERT_EQ(kernels.Keep({3, microseconds(10)}), CUDA_SUCCESS);
  EXPECT_TRUE(kernels.is_holding());
}

}  // namespace
}  // namespace tally::server
