#include "server/executor/dispatch/gap_hold.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// What the queue of kernels would do, when the test says so. The driver's functions take no state of ours.
struct HeldGpu {
  static DriverTable Table() {
    DriverTable table{};
    table.cuCtxGetStreamPriorityRange = [](int* least, int* most) { return *least = 0, *most = -5, CUDA_SUCCESS; };
    table.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      return *stream = reinterpret_cast<CUstream>(1), CUDA_SUCCESS;
    };
    table.cuMemHostAlloc = [](void** memory, size_t bytes, unsigned) {
      return *memory = std::calloc(1, bytes), CUDA_SUCCESS;
    };
    table.cuMemFreeHost = [](void* memory) { return std::free(memory), CUDA_SUCCESS; };
    table.cuModuleLoadDataEx = [](CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
      return *module = reinterpret_cast<CUmodule>(1), result;
    };
    table.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
    table.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
      return *function = reinterpret_cast<CUfunction>(1), CUDA_SUCCESS;
    };
    table.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    table.cuStreamSynchronize = [](CUstream) {
      was_released_at_end = IsReleased();
      return CUDA_SUCCESS;
    };
    table.cuGetErrorName = [](CUresult, const char** name) { return *name = "an error", CUDA_SUCCESS; };
    table.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              CUstream, void** parameters, void**) {
      released = *static_cast<uint32_t**>(parameters[0]);
      ended = *static_cast<uint32_t**>(parameters[1]);
      generation = *static_cast<uint32_t*>(parameters[2]);
      if (result == CUDA_SUCCESS) ++num_launched;
      return result;
    };
    result = CUDA_SUCCESS;
    num_launched = 0;
    released = ended = nullptr;
    was_released_at_end = false;
    return table;
  }
  static bool IsReleased() { return released == nullptr || static_cast<int32_t>(*released - generation) >= 0; }

  static inline CUresult result;
  static inline uint32_t num_launched, generation;
  static inline uint32_t *released, *ended;
  static inline bool was_released_at_end;
};

constexpr uint32_t kQueued = GpuHolder::Shape{}.num_queued;

TEST(GpuHolderTest, TheQueueIsRenewedAsItEnds) {
  const DriverTable table = HeldGpu::Table();
  GpuHolder holder(table, {});
  ASSERT_TRUE(holder.Open());
  holder.Keep();
  holder.Keep();
  EXPECT_EQ(HeldGpu::num_launched, kQueued);
  *HeldGpu::ended = 5;
  holder.Keep();
  EXPECT_EQ(HeldGpu::num_launched, kQueued + 5);
  EXPECT_FALSE(HeldGpu::IsReleased());
}

// What is queued anew must not end by the last release, and what is left of before by no other.
TEST(GpuHolderTest, AReleaseEndsWhatIsQueuedAndNothingLater) {
  const DriverTable table = HeldGpu::Table();
  GpuHolder holder(table, {});
  ASSERT_TRUE(holder.Open());
  holder.Release();
  holder.Keep();
  holder.Release();
  EXPECT_TRUE(HeldGpu::IsReleased());
  EXPECT_FALSE(holder.is_holding());
  *HeldGpu::ended = kQueued;
  holder.Keep();
  EXPECT_FALSE(HeldGpu::IsReleased());
  EXPECT_EQ(HeldGpu::num_launched, 2 * kQueued);
}

TEST(GpuHolderTest, NothingIsHeldWhereItCannotBe) {
  const DriverTable table = HeldGpu::Table();
  {
    GpuHolder holder(table, {});
    HeldGpu::result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    EXPECT_FALSE(holder.Open());
    holder.Keep();
    EXPECT_FALSE(holder.is_holding());
  }
  HeldGpu::Table();
  GpuHolder holder(table, {});
  ASSERT_TRUE(holder.Open());
  HeldGpu::result = CUDA_ERROR_ILLEGAL_ADDRESS;
  holder.Keep();
  HeldGpu::result = CUDA_SUCCESS;
  holder.Keep();  // a context that was lost is not asked again
  EXPECT_EQ(HeldGpu::num_launched, 0);
}

TEST(GpuHolderTest, ItsEndReleasesBeforeItWaits) {
  const DriverTable table = HeldGpu::Table();
  {
    GpuHolder holder(table, {});
    ASSERT_TRUE(holder.Open());
    holder.Keep();
  }
  EXPECT_TRUE(HeldGpu::was_released_at_end);
}

class GapHoldTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(hold_.Open()); }
  // Until requests are made with the GPU held.
  void BeHeld() {
    choice_.Allow(true);
    for (uint32_t i = 0; i < scheduler::HoldGuard::kRound; ++i) choice_.OnRequest(milliseconds(1));
    ASSERT_TRUE(choice_.holds());
  }
  const DriverTable table_ = HeldGpu::Table();
  HoldChoice choice_;
  GapHold hold_{choice_, table_};
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(GapHoldTest, NothingIsHeldWithoutBestEffortWork) {
  for (int i = 0; i < 1000; ++i) choice_.OnRequest(milliseconds(1));
  EXPECT_FALSE(choice_.holds());
  hold_.WhileBusy(now_, true);
  EXPECT_EQ(HeldGpu::num_launched, 0);
  EXPECT_EQ(hold_.OnIdle(now_), now_);
  BeHeld();
  hold_.WhileBusy(now_, true);
  EXPECT_EQ(HeldGpu::num_launched, kQueued);
  choice_.Allow(false);
  hold_.WhileBusy(now_, true);
  EXPECT_TRUE(HeldGpu::IsReleased());
}

// A stream that waits for what never comes is busy for ever.
TEST_F(GapHoldTest, WithoutNewWorkItIsHeldForAMomentOnly) {
  BeHeld();
  hold_.WhileBusy(now_, true);
  hold_.WhileBusy(now_ + GapHold::kLongestWithoutWork / 2, false);
  EXPECT_FALSE(HeldGpu::IsReleased());
  hold_.WhileBusy(now_ + GapHold::kLongestWithoutWork, false);
  EXPECT_TRUE(HeldGpu::IsReleased());
  // Then the gap behind it is not held either: the GPU has turned away.
  EXPECT_EQ(hold_.OnIdle(now_ + milliseconds(50)), now_ + milliseconds(50));
}

TEST_F(GapHoldTest, ShortGapsAreHeldOnceTheyAreKnown) {
  BeHeld();
  for (int i = 0; i < 300; ++i) {
    hold_.WhileBusy(now_, true);
    now_ += microseconds(100);
    const TimePoint until = hold_.OnIdle(now_);
    if (i == 299) {
      EXPECT_GE(until, now_ + microseconds(60));
    }
    now_ += microseconds(60);
    hold_.OnBusy(now_);
  }
}

}  // namespace
}  // namespace tally::server
