#include "server/executor/process/switch_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "server/executor/driver/driver_libraries.h"

namespace tally::server {
namespace {

constexpr const char* kPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 duration) {
  .reg .pred %p; .reg .b64 %d<4>;
  ld.param.u64 %d0, [duration];
  mov.u64 %d1, %globaltimer;
again:
  mov.u64 %d2, %globaltimer;
  sub.u64 %d3, %d2, %d1;
  setp.lt.u64 %p, %d3, %d0;
  @%p bra again;
  ret;
}
)";

}  // namespace

std::string SwitchGpu::Open() {
  auto loaded = LoadDriver({.choice = control::DriverChoice::kCuda, .cuda_path = {}, .sim_path = {}});
  if (!loaded) return loaded.error().message();
  driver_ = loaded->table;
  CUdevice device = 0;
  CUmodule module = nullptr;
  CUresult result = driver_.cuDeviceGet(&device, 0);
  if (result == CUDA_SUCCESS) result = driver_.cuDevicePrimaryCtxRetain(&context_, device);
  if (result == CUDA_SUCCESS) result = driver_.cuCtxSetCurrent(context_);
  if (result == CUDA_SUCCESS) result = driver_.cuModuleLoadData(&module, kPtx);
  if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&spin_, module, "spin");
  if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&ahead_, CU_STREAM_NON_BLOCKING, 0);
  if (result != CUDA_SUCCESS) return CudaErrorName(driver_, result);
  driver_.cuDeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  return Launch(0) && Await() ? "" : "a kernel failed";
}

bool SwitchGpu::IsDoneWithin(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (driver_.cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

bool SwitchGpu::LaunchOn(CUstream stream, unsigned num_blocks, unsigned num_threads, uint64_t duration_ns) {
  void* parameters[] = {&duration_ns};
  return driver_.cuLaunchKernel(spin_, num_blocks, 1, 1, num_threads, 1, 1, 0, stream, parameters, nullptr) ==
         CUDA_SUCCESS;
}

SwitchLatency Summary(std::vector<double> us) {
  if (us.empty()) return {};
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us[us.size() * 99 / 100]};
}

void Print(const char* what, const SwitchLatency& latency) {
  fmt::print("{:<58} {:8.1f} us p50 {:8.1f} us p99\n", what, latency.p50_us, latency.p99_us);
}

}  // namespace tally::server
