#include "server/executor/driver/holding_kernels.h"

#include <algorithm>
#include <cstddef>
#include <new>

namespace tally::server {
namespace {

// Held for a time: long enough that launching the next takes less, short enough that some always queue.
constexpr std::chrono::nanoseconds kEach = std::chrono::microseconds(50);
constexpr int64_t kMostKernels = 48;

constexpr const char* kHoldingPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry tally_hold(.param .u64 released, .param .u64 num_ended, .param .u32 ticket, .param .u64 duration) {
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %d<5>;
  ld.param.u64 %d0, [released];
  ld.param.u64 %d1, [num_ended];
  ld.param.u32 %r0, [ticket];
  ld.param.u64 %d2, [duration];
  mov.u64 %d3, %globaltimer;
again:
  ld.volatile.global.u32 %r1, [%d0];
  sub.u32 %r2, %r1, %r0;
  setp.ge.s32 %p0, %r2, 0;
  @%p0 bra done;
  nanosleep.u32 200;
  mov.u64 %d4, %globaltimer;
  sub.u64 %d4, %d4, %d3;
  setp.lt.u64 %p1, %d4, %d2;
  @%p1 bra again;
done:
  ld.volatile.global.u32 %r3, [%d1];
  add.u32 %r3, %r3, 1;
  st.volatile.global.u32 [%d1], %r3;
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
  if (words_ != nullptr) driver_.cuMemFreeHost(words_);
}

CUresult HoldingKernels::Load() {
  if (driver_.cuMemHostAlloc == nullptr || driver_.cuMemFreeHost == nullptr ||
      driver_.cuMemHostGetDevicePointer_v2 == nullptr) {
    return failed_ = CUDA_ERROR_NOT_SUPPORTED;
  }
  void* memory = nullptr;
  failed_ = driver_.cuMemHostAlloc(&memory, sizeof(Words), CU_MEMHOSTALLOC_DEVICEMAP);
  if (failed_ != CUDA_SUCCESS) return failed_;
  words_ = new (memory) Words;
  failed_ = driver_.cuMemHostGetDevicePointer_v2(&words_address_, memory, 0);
  if (failed_ == CUDA_SUCCESS) failed_ = driver_.cuModuleLoadData(&module_, kHoldingPtx);
  if (failed_ == CUDA_SUCCESS) failed_ = driver_.cuModuleGetFunction(&function_, module_, "tally_hold");
  // The first launch would else load it, and wait for the context then.
  if (failed_ == CUDA_SUCCESS && driver_.cuFuncLoad != nullptr) failed_ = driver_.cuFuncLoad(function_);
  // The lowest priority: a kernel of the service goes first.
  if (failed_ == CUDA_SUCCESS) failed_ = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  return failed_;
}

CUresult HoldingKernels::Keep(const Queue& queue) {
  if (failed_ != CUDA_SUCCESS) return failed_;
  uint32_t num_queued = num_launched_ - words_->num_ended.load(std::memory_order_relaxed);
  uint32_t ticket = ticket_.load(std::memory_order_relaxed);
  if (!is_holding()) {
    num_queued = 0;  // what is left ends at once
    ticket_.store(++ticket, std::memory_order_relaxed);
  }
  CUdeviceptr released = words_address_ + offsetof(Words, released);
  CUdeviceptr num_ended = words_address_ + offsetof(Words, num_ended);
  auto each_ns = static_cast<uint64_t>(queue.each.count());
  void* parameters[] = {&released, &num_ended, &ticket, &each_ns};
  for (; num_queued < queue.num_kernels; ++num_queued, ++num_launched_) {
    failed_ = driver_.cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
    if (failed_ != CUDA_SUCCESS) break;
  }
  return failed_;
}

CUresult HoldingKernels::Hold(std::chrono::nanoseconds duration) {
  Release();
  const int64_t num_kernels = std::clamp<int64_t>((duration + kEach).count() / kEach.count(), 2, kMostKernels);
  return Keep({static_cast<uint32_t>(num_kernels), duration / num_kernels + std::chrono::nanoseconds(1)});
}

}  // namespace tally::server
