#include "server/gpu/gpu_doorbell.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tally::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A driver that writes at once, or waits with its locks held.
std::atomic<uint32_t> g_written{0};
std::atomic<bool> g_is_stuck{false};

DriverTable Driver() {
  DriverTable table{};
  table.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  table.cuMemHostAlloc = [](void** memory, size_t, unsigned) {
    static uint32_t word;
    *memory = &word;
    return CUDA_SUCCESS;
  };
  table.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* place, void* memory, unsigned) {
    *place = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  table.cuStreamCreate = [](CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(&g_written);
    return CUDA_SUCCESS;
  };
  table.cuStreamWriteValue32_v2 = [](CUstream, CUdeviceptr, cuuint32_t value, unsigned) {
    while (g_is_stuck) std::this_thread::sleep_for(milliseconds(1));
    g_written = value;
    return CUDA_SUCCESS;
  };
  return table;
}

class GpuDoorbellTest : public testing::Test {
 protected:
  void SetUp() override {
    g_written = 0;
    g_is_stuck = false;
  }
};

TEST_F(GpuDoorbellTest, EachRingPutsSomethingOnAStream) {
  const DriverTable driver = Driver();
  GpuDoorbell doorbell(driver, nullptr);
  for (uint32_t i = 1; i <= 100; ++i) {
    doorbell.Ring();
    for (int tries = 0; tries < 5000 && g_written != i; ++tries) std::this_thread::sleep_for(milliseconds(1));
    ASSERT_EQ(g_written, i);
  }
}

TEST_F(GpuDoorbellTest, AStuckDriverIsNotWaitedFor) {
  const DriverTable driver = Driver();
  GpuDoorbell doorbell(driver, nullptr);
  g_is_stuck = true;
  doorbell.Ring();
  doorbell.Ring();
  EXPECT_EQ(g_written, 0u);
  g_is_stuck = false;
  for (int tries = 0; tries < 5000 && g_written != 2; ++tries) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(g_written, 2u);
}

TEST_F(GpuDoorbellTest, ADriverWithoutStreamMemoryOperationsIsLeftAlone) {
  DriverTable driver = Driver();
  driver.cuStreamWriteValue32_v2 = nullptr;
  GpuDoorbell(driver, nullptr).Ring();
  EXPECT_EQ(g_written, 0u);
}

}  // namespace
}  // namespace tally::server
