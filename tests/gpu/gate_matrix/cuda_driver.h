// The CUDA driver, opened at run time: the program starts everywhere and says what it lacks.
#pragma once

#include <cuda.h>

#include <chrono>
#include <string>

namespace tally::gate_matrix {

// clang-format off
#define TALLY_GATE_MATRIX_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuGetErrorName) \
  X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxGetStreamPriorityRange) X(cuStreamCreateWithPriority) \
  X(cuStreamSynchronize) X(cuStreamQuery) X(cuMemAlloc_v2) X(cuMemHostAlloc) X(cuMemcpyHtoD_v2) \
  X(cuMemcpyDtoH_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2) X(cuMemsetD32Async) \
  X(cuModuleLoadData) X(cuLinkCreate_v2) X(cuLinkAddData_v2) X(cuLinkComplete) X(cuModuleGetFunction) \
  X(cuModuleGetGlobal_v2) X(cuFuncSetAttribute) X(cuFuncGetParamInfo) \
  X(cuLaunchKernelEx) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) \
  X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy) X(cuEventCreate) X(cuEventRecord) \
  X(cuEventElapsedTime) X(cuOccupancyMaxActiveBlocksPerMultiprocessor)
// clang-format on

struct Driver {
#define X(name) decltype(&::name) name = nullptr;
  TALLY_GATE_MATRIX_FUNCTIONS(X)
#undef X
};

// Of this process. Filled by OpenDriver.
extern Driver driver;
// Ends the program with a sentence if there is no driver.
void OpenDriver(const std::string& path);

// Ends the program: prints what failed, after `OnFailure`'s function has saved what is known so far. Does not wait for
// the GPU, which may be stuck.
[[noreturn]] void Die(const std::string& what);
void OnFailure(void (*save)(const std::string& what));
void Check(CUresult result, const char* what);
#define CHECK_DRIVER(call) ::tally::gate_matrix::Check(::tally::gate_matrix::driver.call, #call)

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;
// Looks at the clock until then: sleeping is too coarse.
void WaitUntil(Clock::time_point time);

}  // namespace tally::gate_matrix
