// What tests of the built library share: how a child says what failed, how it begins, what a scripted executor answers.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <memory>

#include "tests/client-shim/fake_executor.h"

namespace tally::client_shim {

// In a child: the condition's line number is the exit status's stand-in on stderr.
#define REQUIRE(condition)                                                           \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                      \
    }                                                                                \
  } while (false)

// Connects and makes device 0's primary context current.
inline int Begin() {
  REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(SHIM(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  return 0;
}

inline constexpr uint64_t kModuleHandle = shm::MakeHandle(shm::HandleKind::kModule, 0, true, 1);
inline constexpr uint64_t kFunctionHandle = shm::MakeHandle(shm::HandleKind::kFunction, 0, true, 1);

// Scripts a module with one kernel (int, pointer): the int at 0, the pointer at 8.
inline void ScriptKernel(FakeExecutor* executor) {
  executor->On(shm::Op::kLoadModule, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::LoadedImage{kModuleHandle, 0, 0});
  });
  executor->On(shm::Op::kGetFunction, [](const FakeRequest&, FakeReply* reply) {
    shm::KernelDescription description{};
    description.handle = kFunctionHandle;
    description.num_parameters = 2;
    description.parameter_bytes = 16;
    description.attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
    description.attribute[CU_FUNC_ATTRIBUTE_NUM_REGS] = 16;
    description.attribute[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    description.attribute_valid = 1u << CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK | 1u << CU_FUNC_ATTRIBUTE_NUM_REGS |
                                  1u << CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    reply->Append(description);
    reply->Append(shm::ParameterLayout{0, 4});
    reply->Append(shm::ParameterLayout{8, 8});
  });
}

inline int GetKernel(CUfunction* function) {
  CUmodule module = nullptr;
  const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
  REQUIRE(SHIM(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS);
  REQUIRE(SHIM(cuModuleGetFunction)(function, module, "kernel") == CUDA_SUCCESS);
  return 0;
}

// A launch of that kernel by cuLaunchKernelEx: one thread, and one attribute.
struct LaunchWithAttribute {
  LaunchWithAttribute() {
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  LaunchWithAttribute(const LaunchWithAttribute&) = delete;
  LaunchWithAttribute& operator=(const LaunchWithAttribute&) = delete;
  CUresult Launch(CUfunction function) {
    int number = 0;
    void* pointer = nullptr;
    void* parameters[] = {&number, &pointer};
    return SHIM(cuLaunchKernelEx)(&config, function, parameters, nullptr);
  }
  CUlaunchAttribute attribute{};
  CUlaunchConfig config{};
};

// Streams with names of their own.
inline void ScriptStreams(FakeExecutor* executor) {
  auto next = std::make_shared<uint64_t>(0);
  executor->On(shm::Op::kCreateStream, [next](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::MakeHandle(shm::HandleKind::kStream, 0, true, ++*next));
  });
}

// Device memory far from anything the test maps.
inline void ScriptMemory(FakeExecutor* executor) {
  auto next = std::make_shared<uint64_t>(0x500000000000);
  executor->On(shm::Op::kAllocate, [next](const FakeRequest& request, FakeReply* reply) {
    const auto size = request.Read<shm::Allocate>().size_bytes;
    reply->Append(*next);
    reply->Append(uint64_t{0});
    *next += (size + 511) / 512 * 512;
  });
}

}  // namespace tally::client_shim
