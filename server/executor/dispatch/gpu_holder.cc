#include "server/executor/dispatch/gpu_holder.h"

#include <atomic>
#include <new>

#include "base/log.h"
#include "server/executor/driver/driver_libraries.h"

namespace tally::server {
namespace {

constexpr const char* kHoldPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry tally_hold(.param .u64 released, .param .u64 num_ended, .param .u32 generation, .param .u64 duration) {
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<6>;
  ld.param.u64 %d0, [released];
  ld.param.u64 %d1, [num_ended];
  ld.param.u32 %r0, [generation];
  ld.param.u64 %d2, [duration];
  mov.u64 %d3, %globaltimer;
again:
  ld.volatile.global.u32 %r1, [%d0];
  sub.u32 %r1, %r1, %r0;
  setp.ge.s32 %p, %r1, 0;
  @%p bra over;
  nanosleep.u32 200;
  mov.u64 %d4, %globaltimer;
  sub.u64 %d4, %d4, %d3;
  setp.lt.u64 %p, %d4, %d2;
  @%p bra again;
over:
  ld.volatile.global.u32 %r2, [%d1];
  add.u32 %r2, %r2, 1;
  st.volatile.global.u32 [%d1], %r2;
  ret;
}
)";

}  // namespace

GpuHolder::~GpuHolder() {
  Release();
  if (stream_ != nullptr) {
    driver_.cuStreamSynchronize(stream_);
    driver_.cuStreamDestroy_v2(stream_);
  }
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
  if (words_ != nullptr) driver_.cuMemFreeHost(words_);
}

bool GpuHolder::Open() {
  void* words = nullptr;
  int lowest = 0, highest = 0;
  driver_.cuCtxGetStreamPriorityRange(&lowest, &highest);
  CUresult result = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, lowest);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuMemHostAlloc(&words, sizeof(Words), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  }
  if (result == CUDA_SUCCESS) {
    words_ = new (words) Words{};
    result = driver_.cuModuleLoadDataEx(&module_, kHoldPtx, 0, nullptr, nullptr);
  }
  if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&hold_, module_, "tally_hold");
  if (result == CUDA_SUCCESS && driver_.cuFuncLoad != nullptr) result = driver_.cuFuncLoad(hold_);
  if (result != CUDA_SUCCESS) LOG_WARNING("the GPU is not held in gaps: {}", CudaErrorName(driver_, result));
  return can_hold_ = result == CUDA_SUCCESS;
}

void GpuHolder::Keep() {
  if (!can_hold_) return;
  if (!is_holding_) {
    ++generation_;
    is_holding_ = true;
  }
  uint32_t num_ended = std::atomic_ref(words_->num_ended).load(std::memory_order_relaxed);
  uint64_t released = reinterpret_cast<uint64_t>(&words_->released);
  uint64_t ended = reinterpret_cast<uint64_t>(&words_->num_ended);
  uint64_t duration = shape_.kernel_ns;
  void* parameters[] = {&released, &ended, &generation_, &duration};
  for (; num_launched_ - num_ended < shape_.num_queued; ++num_launched_) {
    const CUresult result = driver_.cuLaunchKernel(hold_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
    if (result != CUDA_SUCCESS) {
      can_hold_ = false;  // the context is lost
      return;
    }
  }
}

void GpuHolder::Release() {
  if (!is_holding_) return;
  is_holding_ = false;
  std::atomic_ref(words_->released).store(generation_, std::memory_order_release);
}

}  // namespace tally::server
