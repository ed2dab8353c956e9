#include "server/executor/driver/devices.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::server {
namespace {

constexpr CUdevice kHandle = 41;

// A driver with one device, on which making a context may fail.
struct Driver {
  static DriverTable Table() {
    DriverTable table{};
    table.cuDeviceGetCount = [](int* count) { return *count = 1, CUDA_SUCCESS; };
    table.cuDeviceGet = [](CUdevice* device, int) { return *device = kHandle, CUDA_SUCCESS; };
    table.cuGetErrorName = [](CUresult, const char** name) { return *name = "CUDA_ERROR_SOME", CUDA_SUCCESS; };
    table.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
      *context = reinterpret_cast<CUcontext>(++num_asked);  // also where it fails: the driver may leave anything there
      return result;
    };
    table.cuDevicePrimaryCtxRelease_v2 = [](CUdevice device) { return released.push_back(device), CUDA_SUCCESS; };
    return table;
  }
  static inline uintptr_t num_asked;
  static inline CUresult result;
  static inline std::vector<CUdevice> released;
};

class DevicesTest : public testing::Test {
 protected:
  DevicesTest() {
    Driver::num_asked = 0;
    Driver::result = CUDA_SUCCESS;
    Driver::released.clear();
  }
  CUresult Context() { return devices_->Context(0, &context_); }

  const DriverTable table_ = Driver::Table();
  std::vector<int> told_;
  std::unique_ptr<Devices> devices_ = *Devices::Create(table_, [this](int ordinal) { told_.push_back(ordinal); });
  CUcontext context_ = nullptr;
};

TEST_F(DevicesTest, AContextIsMadeOnceAndReleasedOnce) {
  EXPECT_FALSE(devices_->HasContext(0));
  ASSERT_EQ(Context(), CUDA_SUCCESS);
  const CUcontext first = context_;
  ASSERT_EQ(Context(), CUDA_SUCCESS);
  EXPECT_EQ(context_, first);
  EXPECT_EQ(Driver::num_asked, 1u);
  EXPECT_EQ(told_, (std::vector{0, -1})) << "whoever watches knows that it may take long";
  devices_.reset();
  EXPECT_EQ(Driver::released, std::vector{kHandle});
}

// There may be room for one later. Whoever used what the driver left there would crash.
TEST_F(DevicesTest, AContextThatCouldNotBeMadeIsAskedForAgain) {
  Driver::result = CUDA_ERROR_OUT_OF_MEMORY;
  for (uintptr_t i = 1; i <= 2; ++i) {
    EXPECT_EQ(Context(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(Driver::num_asked, i);
    EXPECT_FALSE(devices_->HasContext(0));
  }
  EXPECT_EQ(told_, (std::vector{0, -1, 0, -1}));
  Driver::result = CUDA_SUCCESS;
  EXPECT_EQ(Context(), CUDA_SUCCESS);
  EXPECT_EQ(context_, reinterpret_cast<CUcontext>(3));
}

TEST_F(DevicesTest, WhatCouldNotBeMadeIsNotReleased) {
  Driver::result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(Context(), CUDA_ERROR_OUT_OF_MEMORY);
  devices_.reset();
  EXPECT_TRUE(Driver::released.empty());
}

}  // namespace
}  // namespace tally::server
