// Driver API: primary and created contexts, the stack of contexts, their settings, peer access.
#include "tests/programs/driver_symbols.h"

namespace {

void PrimaryContext() {
  unsigned int flags = 77;
  int is_active = -1;
  OK(DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &is_active));
  EXPECT(is_active == 0);
  OK(DRIVER(cuDevicePrimaryCtxSetFlags_v2)(0, CU_CTX_SCHED_YIELD));
  OK(DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &is_active));
  EXPECT(is_active == 0 && (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
  OK(DRIVER(cuDevicePrimaryCtxSetFlags)(0, CU_CTX_SCHED_AUTO));
  INVALID(DRIVER(cuDevicePrimaryCtxSetFlags_v2)(0, 0xffff0000));
  EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, DRIVER(cuDevicePrimaryCtxGetState)(4096, &flags, &is_active));

  CUcontext context = nullptr, again = nullptr;
  INVALID(DRIVER(cuDevicePrimaryCtxRetain)(nullptr, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, DRIVER(cuDevicePrimaryCtxRetain)(&context, 4096));
  OK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(DRIVER(cuDevicePrimaryCtxRetain)(&again, 0));
  EXPECT(context == again && context != nullptr);
  OK(DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &is_active));
  EXPECT(is_active == 1);
  OK(DRIVER(cuDevicePrimaryCtxRelease_v2)(0));
  OK(DRIVER(cuDevicePrimaryCtxRelease)(0));
  OK(DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &is_active));
  EXPECT(is_active == 0);
  OK(DRIVER(cuDevicePrimaryCtxReset)(0));
  OK(DRIVER(cuDevicePrimaryCtxReset_v2)(0));
}

void CurrentContext() {
  CUcontext primary = nullptr, made = nullptr, current = nullptr, popped = nullptr;
  CUdevice device = -1;
  CUdeviceptr memory = 0;
  OK(DRIVER(cuCtxGetCurrent)(&current));
  EXPECT(current == nullptr);
  INVALID(DRIVER(cuCtxGetCurrent)(nullptr));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, DRIVER(cuCtxGetDevice)(&device));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, DRIVER(cuMemAlloc_v2)(&memory, 16));
  OK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
  OK(DRIVER(cuCtxSetCurrent)(primary));
  OK(DRIVER(cuCtxGetCurrent)(&current));
  EXPECT(current == primary);
  OK(DRIVER(cuCtxGetDevice)(&device));
  EXPECT(device == 0);
  device = -1;
  OK(DRIVER(cuCtxGetDevice_v2)(&device, primary));
  EXPECT(device == 0);
  OK(DRIVER(cuMemAlloc_v2)(&memory, 16));
  OK(DRIVER(cuMemFree_v2)(memory));

  OK(DRIVER(cuCtxCreate_v2)(&made, CU_CTX_SCHED_SPIN, 0));
  INVALID(DRIVER(cuCtxCreate_v2)(nullptr, 0, 0));
  OK(DRIVER(cuCtxGetCurrent)(&current));
  EXPECT(current == made && made != primary);
  unsigned int flags = 0;
  OK(DRIVER(cuCtxGetFlags)(&flags));
  EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_SPIN);
  OK(DRIVER(cuCtxSetFlags)(CU_CTX_SCHED_YIELD));
  OK(DRIVER(cuCtxGetFlags)(&flags));
  EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD);
  unsigned long long id = 0, other_id = 0;
  OK(DRIVER(cuCtxGetId)(made, &id));
  OK(DRIVER(cuCtxGetId)(primary, &other_id));
  EXPECT(id != other_id);
  OK(DRIVER(cuMemAlloc_v2)(&memory, 1 << 20));  // goes with its context

  OK(DRIVER(cuCtxPopCurrent_v2)(&popped));
  EXPECT(popped == made);
  OK(DRIVER(cuCtxGetCurrent)(&current));
  EXPECT(current == primary);
  OK(DRIVER(cuCtxPushCurrent_v2)(made));
  OK(DRIVER(cuCtxPopCurrent)(&popped));
  EXPECT(popped == made);
  OK(DRIVER(cuCtxPushCurrent)(made));
  OK(DRIVER(cuCtxDestroy_v2)(made));
  FAILS(DRIVER(cuCtxDestroy_v2)(nullptr));

  OK(DRIVER(cuCtxCreate_v3)(&made, nullptr, 0, 0, 0));
  OK(DRIVER(cuCtxDestroy)(made));
  OK(DRIVER(cuCtxCreate_v4)(&made, nullptr, 0, 0));
  OK(DRIVER(cuCtxDestroy_v2)(made));
  OK(DRIVER(cuCtxSetCurrent)(primary));
  // Attaching is counting, from before there were primary contexts.
  OK(DRIVER(cuCtxCreate_v2)(&made, 0, 0));
  CUcontext attached = nullptr;
  OK(DRIVER(cuCtxAttach)(&attached, 0));
  EXPECT(attached == made);
  OK(DRIVER(cuCtxDetach)(attached));
  OK(DRIVER(cuCtxDestroy_v2)(made));
  OK(DRIVER(cuCtxSetCurrent)(nullptr));
  OK(DRIVER(cuCtxGetCurrent)(&current));
  EXPECT(current == nullptr);
  OK(DRIVER(cuDevicePrimaryCtxRelease_v2)(0));
}

void Settings() {
  CUcontext primary = nullptr;
  OK(DRIVER(cuDevicePrimaryCtxRetain)(&primary, 0));
  OK(DRIVER(cuCtxSetCurrent)(primary));
  unsigned int version = 0;
  OK(DRIVER(cuCtxGetApiVersion)(primary, &version));
  EXPECT(version >= 3020);
  INVALID(DRIVER(cuCtxGetApiVersion)(primary, nullptr));
  size_t limit = 0, read_back = 0;
  OK(DRIVER(cuCtxGetLimit)(&limit, CU_LIMIT_STACK_SIZE));
  OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 2 * limit));
  OK(DRIVER(cuCtxGetLimit)(&read_back, CU_LIMIT_STACK_SIZE));
  EXPECT(read_back >= 2 * limit);
  OK(DRIVER(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, limit));
  INVALID(DRIVER(cuCtxGetLimit)(nullptr, CU_LIMIT_STACK_SIZE));
  FAILS(DRIVER(cuCtxGetLimit)(&limit, static_cast<CUlimit>(99)));
  CUfunc_cache cache;
  OK(DRIVER(cuCtxSetCacheConfig)(CU_FUNC_CACHE_PREFER_L1));
  OK(DRIVER(cuCtxGetCacheConfig)(&cache));
  CUsharedconfig shared;
  OK(DRIVER(cuCtxSetSharedMemConfig)(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  OK(DRIVER(cuCtxGetSharedMemConfig)(&shared));
  int least = 1, greatest = 1;
  OK(DRIVER(cuCtxGetStreamPriorityRange)(&least, &greatest));
  EXPECT(least == 0 && greatest <= 0);
  OK(DRIVER(cuCtxGetStreamPriorityRange)(nullptr, &greatest));
  CUexecAffinityParam affinity;
  memset(&affinity, 0, sizeof(affinity));
  DRIVER(cuCtxGetExecAffinity)(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
  DRIVER(cuCtxResetPersistingL2Cache)();
  OK(DRIVER(cuCtxSynchronize)());
  OK(DRIVER(cuCtxSynchronize_v2)(primary));
  // The own context is no peer.
  FAILS(DRIVER(cuCtxEnablePeerAccess)(primary, 0));
  FAILS(DRIVER(cuCtxDisablePeerAccess)(primary));
  FAILS(DRIVER(cuCtxEnablePeerAccess)(nullptr, 0));
  if (check::IsTally()) {
    const auto nonsense = reinterpret_cast<CUcontext>(0x123450);
    FAILS(DRIVER(cuCtxSetCurrent)(nonsense));
    FAILS(DRIVER(cuCtxPushCurrent_v2)(nonsense));
    FAILS(DRIVER(cuCtxDestroy_v2)(nonsense));
    FAILS(DRIVER(cuCtxGetApiVersion)(nonsense, &version));
    FAILS(DRIVER(cuCtxGetId)(nonsense, nullptr));
    FAILS(DRIVER(cuCtxDetach)(nonsense));
  }
  OK(DRIVER(cuDevicePrimaryCtxRelease_v2)(0));
}

void Checks() {
  OK(DRIVER(cuInit)(0));
  PrimaryContext();
  CurrentContext();
  Settings();
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
