// A device of the software driver with its context current: for tests of what launches kernels.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_libraries.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

class SimDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded =
        LoadDriver({.choice = control::DriverChoice::kSim, .cuda_path = {}, .sim_path = TALLY_SIM_DRIVER_PATH});
    ASSERT_TRUE(loaded) << loaded.error().ToString();
    driver_ = loaded->table;
    ASSERT_EQ(driver_.cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    completions_.emplace(driver_);
  }
  void TearDown() override {
    completions_.reset();
    driver_.cuDevicePrimaryCtxRelease_v2(0);
  }

  CUfunction Function(const std::string& ptx, const char* name) {
    CUmodule module = nullptr;
    EXPECT_EQ(driver_.cuModuleLoadDataEx(&module, ptx.c_str(), 0, nullptr, nullptr), CUDA_SUCCESS);
    CUfunction function = nullptr;
    EXPECT_EQ(driver_.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
    return function;
  }
  CUdeviceptr ZeroedMemory(size_t size_bytes) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(driver_.cuMemAlloc_v2(&memory, size_bytes), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuMemsetD8Async(memory, 0, size_bytes, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    return memory;
  }
  CUstream Stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(driver_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return stream;
  }
  bool HasEnded(CUstream stream) { return driver_.cuStreamQuery(stream) == CUDA_SUCCESS; }
  // Until `condition`, or the test's time limit.
  template <typename Condition>
  static void Await(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  DriverTable driver_;
  CUcontext context_ = nullptr;
  std::optional<CompletionSource> completions_;
};

}  // namespace tally::server
