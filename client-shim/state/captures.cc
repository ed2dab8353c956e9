#include "client-shim/state/captures.h"

#include <pthread.h>

#include <algorithm>

#include "client-shim/transport/thread_state.h"
#include "proto/shm/handles_abi.h"

namespace tally::client_shim {
namespace {

uint64_t ThisThread() { return static_cast<uint64_t>(::pthread_self()); }

}  // namespace

void Captures::Begin(uint64_t origin_stream, bool is_blocking_stream, uint32_t context, CUstreamCaptureMode mode) {
  const std::lock_guard lock(mutex_);
  open_.push_back({origin_stream, ThisThread(), context, is_blocking_stream, false, mode});
  num_open_.fetch_add(1, std::memory_order_relaxed);
}

// One word stands for the per-thread streams of all threads, in each of their contexts.
bool Captures::IsOrigin(const Capture& capture, uint64_t stream) {
  if (capture.origin_stream != stream) return false;
  return stream != shm::kPerThreadStream || (capture.thread == ThisThread() && capture.context == t_thread.context);
}

const Captures::Capture* Captures::FindLocked(uint64_t origin_stream) const {
  const auto found =
      std::ranges::find_if(open_, [&](const Capture& capture) { return IsOrigin(capture, origin_stream); });
  return found != open_.end() ? &*found : nullptr;
}

CUresult Captures::CheckEnd(uint64_t origin_stream) const {
  const std::lock_guard lock(mutex_);
  const Capture* capture = FindLocked(origin_stream);
  if (capture == nullptr) return CUDA_SUCCESS;  // the executor knows what is wrong
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThisThread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  return CUDA_SUCCESS;
}

CUresult Captures::End(uint64_t origin_stream, bool* is_open) {
  const std::lock_guard lock(mutex_);
  const Capture* capture = FindLocked(origin_stream);
  *is_open = capture != nullptr;
  if (capture == nullptr) return CUDA_SUCCESS;
  const CUresult result = capture->is_spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  open_.erase(open_.begin() + (capture - open_.data()));
  num_open_.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

bool Captures::IsSpoilt(uint64_t origin_stream) const {
  if (!any()) return false;
  const std::lock_guard lock(mutex_);
  const Capture* capture = FindLocked(origin_stream);
  return capture != nullptr && capture->is_spoilt;
}

template <typename Predicate>
bool Captures::SpoilIf(const Predicate& is_forbidden) {
  bool is_any = false;
  const std::lock_guard lock(mutex_);
  for (Capture& capture : open_) {
    if (is_forbidden(capture)) capture.is_spoilt = is_any = true;
  }
  return is_any;
}

CUresult Captures::CheckUnsafeSlowly() {
  const auto mode = static_cast<CUstreamCaptureMode>(t_thread.capture_mode);
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const bool is_any = SpoilIf([&](const Capture& capture) {
    const bool is_own = capture.thread == ThisThread() && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool is_everybodys = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    return is_own || is_everybodys;
  });
  return is_any ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

bool Captures::SpoilAll(uint32_t context) {
  return SpoilIf([&](const Capture& capture) { return capture.context == context; });
}

CUresult Captures::CheckSynchronizeContext(uint32_t context) {
  return any() && SpoilAll(context) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult Captures::CheckLegacyStream(uint32_t context) {
  if (!any()) return CUDA_SUCCESS;
  const bool is_any =
      SpoilIf([&](const Capture& capture) { return capture.context == context && capture.is_blocking_stream; });
  return is_any ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

void Captures::Spoil(uint64_t origin_stream) {
  SpoilIf([&](const Capture& capture) { return IsOrigin(capture, origin_stream); });
}

template <typename Predicate>
void Captures::ForgetIf(const Predicate& is_gone) {
  if (!any()) return;
  const std::lock_guard lock(mutex_);
  num_open_.fetch_sub(static_cast<uint32_t>(std::erase_if(open_, is_gone)), std::memory_order_relaxed);
}

void Captures::Forget(uint64_t origin_stream) {
  ForgetIf([&](const Capture& capture) { return IsOrigin(capture, origin_stream); });
}

void Captures::ForgetContext(uint32_t context) {
  ForgetIf([&](const Capture& capture) { return capture.context == context; });
}

}  // namespace tally::client_shim
