// A GPU for tests of the library: the driver that the process finds, natively the software one under its usual name
// (CMakeLists.txt), or Tally's.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tally::pipelines {

class Gpu {
 public:
  // The driver's function of that name.
  template <typename Function>
  static Function* Find(const char* name) {
    static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    auto* const function = library == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library, name));
    if (function == nullptr) ADD_FAILURE() << "no " << name << " in libcuda.so.1";
    return function;
  }

  Gpu() {
    EXPECT_EQ(Find<decltype(::cuInit)>("cuInit")(0), CUDA_SUCCESS);
    EXPECT_EQ(Find<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context_, 0), CUDA_SUCCESS);
    MakeCurrent();
  }
  ~Gpu() {
    for (const CUdeviceptr address : allocated_) Find<decltype(::cuMemFree_v2)>("cuMemFree_v2")(address);
    // Also after an error: the next test starts anew.
    Find<decltype(::cuDevicePrimaryCtxReset_v2)>("cuDevicePrimaryCtxReset_v2")(0);
    Find<decltype(::cuDevicePrimaryCtxRelease_v2)>("cuDevicePrimaryCtxRelease_v2")(0);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void MakeCurrent() const { EXPECT_EQ(Find<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context_), CUDA_SUCCESS); }
  void* Allocate(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(Find<decltype(::cuMemAlloc_v2)>("cuMemAlloc_v2")(&address, bytes), CUDA_SUCCESS);
    allocated_.push_back(address);
    return reinterpret_cast<void*>(address);
  }
  void Write(void* to, const void* from, size_t bytes) const {
    EXPECT_EQ(Find<decltype(::cuMemcpyHtoD_v2)>("cuMemcpyHtoD_v2")(reinterpret_cast<CUdeviceptr>(to), from, bytes),
              CUDA_SUCCESS);
  }
  void Read(void* to, const void* from, size_t bytes) const {
    EXPECT_EQ(Find<decltype(::cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2")(to, reinterpret_cast<CUdeviceptr>(from), bytes),
              CUDA_SUCCESS);
  }
  template <typename T>
  void* Upload(const std::vector<T>& values) {
    void* const to = Allocate(values.size() * sizeof(T));
    Write(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  int Multiprocessors() const {
    int value = 0;
    EXPECT_EQ(Find<decltype(::cuDeviceGetAttribute)>("cuDeviceGetAttribute")(
                  &value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
              CUDA_SUCCESS);
    return value;
  }
  // Our simulator, also when it stands behind Tally.
  bool IsSoftware() const {
    char name[64] = {};
    EXPECT_EQ(Find<decltype(::cuDeviceGetName)>("cuDeviceGetName")(name, sizeof name, 0), CUDA_SUCCESS);
    return std::string(name).find("NVIDIA") == std::string::npos;
  }
  CUresult Synchronize() const { return Find<decltype(::cuCtxSynchronize)>("cuCtxSynchronize")(); }
  CUcontext context() const { return context_; }

 private:
  CUcontext context_ = nullptr;
  std::vector<CUdeviceptr> allocated_;
};

}  // namespace tally::pipelines
