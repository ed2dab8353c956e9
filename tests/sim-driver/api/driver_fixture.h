// A fresh primary context per test, and shorthand for calls that must succeed.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace tally::sim_driver {

#define EXPECT_OK(call) EXPECT_EQ(CUDA_SUCCESS, call)
#define ASSERT_OK(call) ASSERT_EQ(CUDA_SUCCESS, call)

// PTX with the kernels that the tests launch; see kernels.cc.
extern const char* const kTestPtx;

class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_OK(cuCtxSetCurrent(context_));
  }
  void TearDown() override {
    cuDevicePrimaryCtxReset_v2(0);
    cuCtxSetCurrent(nullptr);
  }

  CUfunction Kernel(const char* name) {
    if (module_ == nullptr) {
      EXPECT_OK(cuModuleLoadData(&module_, kTestPtx));
    }
    CUfunction function = nullptr;
    EXPECT_OK(cuModuleGetFunction(&function, module_, name)) << name;
    return function;
  }
  CUdeviceptr Allocate(size_t num_bytes) {
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAlloc_v2(&address, num_bytes));
    return address;
  }
  CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_OK(cuStreamCreate(&stream, flags));
    return stream;
  }
  CUevent NewEvent(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent event = nullptr;
    EXPECT_OK(cuEventCreate(&event, flags));
    return event;
  }
  template <typename... Parameters>
  CUresult Launch(const char* kernel, unsigned grid, unsigned block, CUstream stream, Parameters... parameters) {
    void* pointers[] = {&parameters..., nullptr};
    return cuLaunchKernel(Kernel(kernel), grid, 1, 1, block, 1, 1, 0, stream, pointers, nullptr);
  }
  std::vector<uint32_t> Read(CUdeviceptr address, size_t count) {
    std::vector<uint32_t> words(count);
    EXPECT_OK(cuMemcpyDtoH_v2(words.data(), address, count * sizeof(uint32_t)));
    return words;
  }

  // Pinned words that host and kernels share; the first is what the kernel `wait_for_flag` waits for.
  uint32_t* NewFlags() {
    void* flags = nullptr;
    EXPECT_OK(cuMemHostAlloc(&flags, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    return static_cast<uint32_t*>(flags);
  }
  static void Raise(uint32_t* flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
  static uint32_t Peek(const uint32_t* flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
  static CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

}  // namespace tally::sim_driver
