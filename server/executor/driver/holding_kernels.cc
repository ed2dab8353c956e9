#include "server/executor/driver/holding_kernels.h"

#include <algorithm>
#include <new>

namespace tally::server {
namespace {

// Long enough that launching the next takes less, short enough that some always queue.
constexpr std::chrono::nanoseconds kEach = std::chrono::microseconds(50);
constexpr int64_t kMostKernels = 48;

constexpr const char* kHoldingPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry tally_hold(.param .u64 word, .param .u32 ticket, .param .u64 duration) {
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .b64 %d<5>;
  ld.param.u64 %d0, [word];
  ld.param.u32 %r0, [ticket];
  ld.param.u64 %d1, [duration];
  mov.u64 %d2, %globaltimer;
again:
  ld.volatile.global.u32 %r1, [%d0];
  sub.u32 %r2, %r1, %r0;
  setp.ge.s32 %p0, %r2, 0;
  @%p0 bra done;
  mov.u64 %d3, %globaltimer;
  sub.u64 %d4, %d3, %d2;
  setp.lt.u64 %p1, %d4, %d1;
  @%p1 bra again;
done:
  ret;
}
)";

}  // namespace

HoldingKernels::~HoldingKernels() {
  Release();
  if (stream_ != nullptr) {
    driver_.cuStreamSynchronize(stream_);
    driver_.cuStreamDestroy_v2(stream_);
  }
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
  if (word_ != nullptr) driver_.cuMemFreeHost(word_);
}

CUresult HoldingKernels::Load() {
  if (driver_.cuMemHostAlloc == nullptr || driver_.cuMemFreeHost == nullptr ||
      driver_.cuMemHostGetDevicePointer_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  void* memory = nullptr;
  CUresult result = driver_.cuMemHostAlloc(&memory, sizeof(*word_), CU_MEMHOSTALLOC_DEVICEMAP);
  if (result != CUDA_SUCCESS) return result;
  word_ = new (memory) std::atomic<uint32_t>(0);
  result = driver_.cuMemHostGetDevicePointer_v2(&word_address_, memory, 0);
  if (result == CUDA_SUCCESS) result = driver_.cuModuleLoadData(&module_, kHoldingPtx);
  if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&function_, module_, "tally_hold");
  if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  return result;
}

CUresult HoldingKernels::Hold(std::chrono::nanoseconds duration) {
  uint32_t ticket = ticket_.load(std::memory_order_relaxed) + 1;
  ticket_.store(ticket, std::memory_order_relaxed);
  const int64_t num_kernels = std::clamp<int64_t>((duration + kEach).count() / kEach.count(), 2, kMostKernels);
  auto each_ns = static_cast<uint64_t>(duration.count() / num_kernels + 1);
  void* parameters[] = {&word_address_, &ticket, &each_ns};
  for (int64_t i = 0; i < num_kernels; ++i) {
    const CUresult result = driver_.cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::server
