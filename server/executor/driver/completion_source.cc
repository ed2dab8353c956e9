#include "server/executor/driver/completion_source.h"

#include <algorithm>
#include <iterator>

namespace tally::server {
namespace {

// What one burst needed need not be kept for ever.
constexpr size_t kMostKept = 4096;
// Of those that may still be pending, before a new one is made.
constexpr size_t kMostAsked = 4;

}  // namespace

CUresult StateOfEvent(const DriverTable& driver, CUevent event) { return driver.cuEventQuery(event); }

Mark& Mark::operator=(Mark&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  source_ = other.source_;
  event_ = std::exchange(other.event_, nullptr);
  stream_ = std::exchange(other.stream_, nullptr);
  kind_ = other.kind_;
  has_ended_ = std::exchange(other.has_ended_, true);
  return *this;
}

void Mark::Clear() {
  if (event_ != nullptr) source_->Return(*this);
  event_ = nullptr;
  stream_ = nullptr;
  has_ended_ = true;
}

CUresult Mark::State() const {
  if (has_ended_) return CUDA_SUCCESS;
  const CUresult state = StateOfEvent(source_->driver_, event_);
  if (state == CUDA_SUCCESS) has_ended_ = true;
  if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) source_->NoteError(state);
  return state;
}

CUresult Mark::Await() const {
  if (has_ended_) return CUDA_SUCCESS;
  const CUresult state = source_->driver_.cuEventSynchronize(event_);
  if (state == CUDA_SUCCESS) has_ended_ = true;
  return state;
}

CUresult Mark::HoldBack(CUstream stream) const {
  return has_ended_ ? CUDA_SUCCESS : source_->driver_.cuStreamWaitEvent(stream, event_, 0);
}

CUevent CompletionSource::TakeFromPool(MarkKind kind) {
  Pool& pool = PoolOf(kind);
  std::array<CUevent, kMostAsked> asked{};
  size_t num_asked = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!pool.ended.empty()) {
      const CUevent event = pool.ended.back();
      pool.ended.pop_back();
      return event;
    }
    for (; num_asked < kMostAsked && !pool.pending.empty(); ++num_asked) {
      asked[num_asked] = pool.pending.front();
      pool.pending.pop_front();
    }
  }
  if (num_asked == 0) return nullptr;
  // Without the lock: the driver may wait for somebody who needs it.
  const auto end = asked.begin() + static_cast<std::ptrdiff_t>(num_asked);
  const auto found =
      std::find_if(asked.begin(), end, [this](CUevent event) { return StateOfEvent(driver_, event) == CUDA_SUCCESS; });
  const CUevent event = found != end ? *found : nullptr;
  const std::lock_guard lock(mutex_);
  std::copy_if(asked.begin(), end, std::back_inserter(pool.pending), [event](CUevent other) { return other != event; });
  return event;
}

bool CompletionSource::IsOurs(const Mark& mark, MarkKind kind) const {
  return mark.event_ != nullptr && mark.source_ == this && mark.kind_ == kind;
}

CUresult CompletionSource::Prepare(Mark* mark, MarkKind kind) {
  if (IsOurs(*mark, kind)) return CUDA_SUCCESS;
  Mark made;
  made.event_ = TakeFromPool(kind);
  if (made.event_ == nullptr) {
    const unsigned flags = kind == MarkKind::kTimed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
    if (const CUresult r = driver_.cuEventCreate(&made.event_, flags); r != CUDA_SUCCESS) {
      made.event_ = nullptr;
      return r;
    }
  }
  made.source_ = this;
  made.kind_ = kind;
  *mark = std::move(made);
  return CUDA_SUCCESS;
}

CUresult CompletionSource::Put(CUstream stream, Mark* mark, MarkKind kind) {
  if (IsOurs(*mark, kind)) return Record(stream, mark);
  Mark made;
  if (const CUresult r = Prepare(&made, kind); r != CUDA_SUCCESS) return r;
  if (const CUresult r = Record(stream, &made); r != CUDA_SUCCESS) return r;
  *mark = std::move(made);
  return CUDA_SUCCESS;
}

CUresult CompletionSource::Record(CUstream stream, Mark* mark) {
  if (const CUresult r = driver_.cuEventRecord(mark->event_, stream); r != CUDA_SUCCESS) return r;
  mark->stream_ = stream;
  mark->has_ended_ = false;
  return CUDA_SUCCESS;
}

std::optional<std::chrono::nanoseconds> CompletionSource::Between(const Mark& begin, const Mark& end) const {
  if (!begin.exists() || !end.exists()) return std::nullopt;
  float milliseconds = 0;
  const CUresult result = driver_.cuEventElapsedTime(&milliseconds, begin.event_, end.event_);
  if (result != CUDA_SUCCESS) return std::nullopt;
  begin.has_ended_ = end.has_ended_ = true;
  return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6));
}

void CompletionSource::Return(const Mark& mark) {
  Pool& pool = PoolOf(mark.kind_);
  {
    const std::lock_guard lock(mutex_);
    if (pool.ended.size() + pool.pending.size() < kMostKept) {
      if (mark.has_ended_) {
        pool.ended.push_back(mark.event_);
      } else {
        pool.pending.push_back(mark.event_);
      }
      return;
    }
  }
  driver_.cuEventDestroy_v2(mark.event_);
}

void CompletionSource::NoteError(CUresult result) {
  int none = CUDA_SUCCESS;
  if (IsSticky(result)) error_.compare_exchange_strong(none, static_cast<int>(result));
}

CUresult CompletionSource::TakeError() {
  const int error = error_.load();
  if (error == CUDA_SUCCESS || is_error_taken_.exchange(true)) return CUDA_SUCCESS;
  return static_cast<CUresult>(error);
}

void CompletionSource::Clear() {
  const std::lock_guard lock(mutex_);
  for (Pool& pool : pools_) {
    for (const CUevent event : pool.ended) driver_.cuEventDestroy_v2(event);
    for (const CUevent event : pool.pending) driver_.cuEventDestroy_v2(event);
    pool = {};
  }
}

bool Look::HasEnded(const Mark& mark) {
  const auto end = busy_.begin() + static_cast<std::ptrdiff_t>(num_busy_);
  if (mark.exists() && std::find(busy_.begin(), end, mark.stream()) != end) return false;
  if (mark.HasEnded()) return true;
  if (num_busy_ < busy_.size()) busy_[num_busy_++] = mark.stream();
  return false;
}

}  // namespace tally::server
