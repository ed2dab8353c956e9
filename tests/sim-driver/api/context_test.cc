#include <chrono>
#include <thread>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class ContextTest : public DriverTest {};

TEST_F(ContextTest, CallsNeedACurrentContext) {
  EXPECT_OK(cuCtxSetCurrent(nullptr));
  CUdeviceptr address = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(nullptr));
  CUdevice device = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
  CUcontext current = reinterpret_cast<CUcontext>(1);
  EXPECT_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(nullptr, current);
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&current));
}

TEST_F(ContextTest, EachThreadHasItsOwnStack) {
  CUcontext made = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&made, CU_CTX_SCHED_SPIN, 0));
  CUcontext current = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(made, current);
  std::thread([] {
    CUcontext other = reinterpret_cast<CUcontext>(1);
    EXPECT_OK(cuCtxGetCurrent(&other));
    EXPECT_EQ(nullptr, other);
  }).join();
  unsigned flags = 0, version = 0;
  EXPECT_OK(cuCtxGetFlags(&flags));
  EXPECT_EQ(static_cast<unsigned>(CU_CTX_SCHED_SPIN), flags & CU_CTX_SCHED_MASK);
  EXPECT_OK(cuCtxGetApiVersion(made, &version));
  EXPECT_EQ(3020U, version);
  EXPECT_OK(cuCtxDestroy_v2(made));
  EXPECT_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(context_, current);
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(made));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(made));
}

TEST_F(ContextTest, DestroyEndsWhatTheContextOwns) {
  CUcontext made = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&made, 0, 0));
  const CUdeviceptr address = Allocate(1 << 20);
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  CUmodule module = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, kTestPtx));
  size_t before = 0, after = 0, total = 0;
  EXPECT_OK(cuMemGetInfo_v2(&before, &total));
  EXPECT_OK(cuCtxDestroy_v2(made));
  EXPECT_OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_GE(after, before + (1 << 20));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
  EXPECT_NE(CUDA_SUCCESS, cuStreamQuery(stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
}

TEST_F(ContextTest, PrimaryContextCountsItsUsers) {
  unsigned flags = 9;
  int active = 0;
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
  CUcontext again = nullptr;
  EXPECT_OK(cuDevicePrimaryCtxRetain(&again, 0));
  EXPECT_EQ(context_, again);
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(0, active);
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
}

TEST_F(ContextTest, LimitsCanBeSetAndRead) {
  size_t value = 0;
  EXPECT_OK(cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
  EXPECT_EQ(size_t{1} << 20, value);
  EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4000));
  EXPECT_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_GE(value, 4000U);
  EXPECT_EQ(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, static_cast<CUlimit>(99)));
}

TEST_F(ContextTest, FaultStaysUntilReset) {
  CUdeviceptr address = Allocate(4);
  EXPECT_OK(cuMemFree_v2(address));
  ASSERT_OK(Launch("store_at", 1, 1, nullptr, address));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&address, 4));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(nullptr));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(nullptr));
  CUdevice device = -1;
  EXPECT_OK(cuCtxGetDevice(&device));
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
  EXPECT_OK(cuCtxSetCurrent(context_));
  EXPECT_OK(cuMemAlloc_v2(&address, 4));
}

TEST_F(ContextTest, TheFirstFaultStays) {
  uint32_t* const flag = NewFlags();
  const CUdeviceptr freed = Allocate(4);
  EXPECT_OK(cuMemFree_v2(freed));
  const CUstream later = NewStream(), first = NewStream();
  ASSERT_OK(Launch("wait_for_flag", 1, 1, later, Address(flag), freed, uint32_t{1}));
  ASSERT_OK(Launch("trap_now", 1, 1, first));
  while (cuStreamQuery(first) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, cuStreamQuery(first));
  Raise(flag);
  // Nothing says when the other has ended: all calls fail already.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_EQ(CUDA_ERROR_LAUNCH_FAILED, cuStreamQuery(later));
    std::this_thread::yield();
  }
}

TEST_F(ContextTest, FaultOfOneContextLeavesOthersWell) {
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  CUmodule module = nullptr;
  CUfunction trap = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, kTestPtx));
  ASSERT_OK(cuModuleGetFunction(&trap, module, "trap_now"));
  ASSERT_OK(cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
  EXPECT_OK(cuCtxPopCurrent_v2(nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuCtxDestroy_v2(other));
}

}  // namespace
}  // namespace tally::sim_driver
