#include "server/gpu/gap_guard.h"

#include "base/log.h"
#include "server/gpu/driver_table.h"

namespace tally::server {
namespace {

// A guard ends when `lifted` has reached its number (which may have wrapped around) or its time is over.
constexpr const char* kPtx = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry tally_guard(.param .u64 lifted, .param .u64 limit_ns, .param .u32 number)
{
	.reg .pred %p<3>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<6>;
	ld.param.u64 %rd1, [lifted];
	ld.param.u64 %rd2, [limit_ns];
	ld.param.u32 %r1, [number];
	mov.u64 %rd3, %globaltimer;
again:
	ld.volatile.global.u32 %r2, [%rd1];
	sub.s32 %r3, %r2, %r1;
	setp.ge.s32 %p1, %r3, 0;
	@%p1 bra done;
	mov.u64 %rd4, %globaltimer;
	sub.u64 %rd5, %rd4, %rd3;
	setp.ge.u64 %p2, %rd5, %rd2;
	@%p2 bra done;
	nanosleep.u32 500;
	bra again;
done:
	ret;
}
)";

}  // namespace

CUresult GapGuard::Prepare() {
  CUmodule module = nullptr;
  void* word = nullptr;
  int least = 0, greatest = 0;
  CUresult result = driver_.cuModuleLoadData(&module, kPtx);
  if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&kernel_, module, "tally_guard");
  if (result == CUDA_SUCCESS) result = driver_.cuMemHostAlloc(&word, sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) result = driver_.cuMemHostGetDevicePointer_v2(&lifted_address_, word, 0);
  if (result == CUDA_SUCCESS) result = driver_.cuCtxGetStreamPriorityRange(&least, &greatest);
  if (result == CUDA_SUCCESS) result = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, least);
  if (result != CUDA_SUCCESS) return result;
  lifted_through_ = static_cast<uint32_t*>(word);
  *lifted_through_ = 0;
  return CUDA_SUCCESS;
}

CUresult GapGuard::Launch() {
  uint64_t limit_ns = std::chrono::nanoseconds(kLongestLife).count();
  uint32_t number = num_launched_ + 1;
  void* parameters[] = {&lifted_address_, &limit_ns, &number};
  return driver_.cuLaunchKernel(kernel_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
}

void GapGuard::Keep(const Clock& clock) {
  if (is_broken_ || !is_enabled_.load(std::memory_order_relaxed)) return;
  const TimePoint now = clock.Now();
  if (is_there_ && now - launched_at_ < kLongestLife / 2) return;
  CUresult result = kernel_ == nullptr ? Prepare() : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    Lift();  // the one before is behind half of its life; the new one follows in its stream
    result = Launch();
  }
  if (result == CUDA_SUCCESS) {
    ++num_launched_;
    is_there_ = true;
    launched_at_ = now;
    return;
  }
  is_broken_ = true;
  LOG_WARNING("the GPU is not kept in the gaps of high-priority work: {}", CudaErrorName(driver_, result));
}

void GapGuard::Lift() {
  if (!is_there_) return;
  is_there_ = false;
  __atomic_store_n(lifted_through_, num_launched_, __ATOMIC_RELEASE);
}

}  // namespace tally::server
