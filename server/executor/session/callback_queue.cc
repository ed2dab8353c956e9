#include "server/executor/session/callback_queue.h"

#include <algorithm>

namespace tally::server {

void CallbackQueue::Release(const Entry& entry) {
  if (entry.word != nullptr) entry.word->store(entry.number, std::memory_order_release);
}

std::shared_ptr<CallbackQueue::Entry> CallbackQueue::AddLocked(uint64_t token, CUresult stream_status,
                                                               std::atomic<uint32_t>* word, uint32_t number) {
  auto entry = std::make_shared<Entry>(Entry{token, stream_status, word, number});
  waiting_.push_back(entry);
  if (!waits_since_) waits_since_ = clock_.Now();
  posted_.notify_one();
  return entry;
}

void CallbackQueue::Post(uint64_t token, CUresult stream_status, std::atomic<uint32_t>* word, uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    Release({token, stream_status, word, number});
  } else {
    AddLocked(token, stream_status, word, number);
  }
}

void CallbackQueue::RunInClient(uint64_t token, CUresult stream_status) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  const std::shared_ptr<Entry> entry = AddLocked(token, stream_status, nullptr, 0);
  finished_.wait(lock, [&] { return entry->done || closed_; });
}

std::shared_ptr<CallbackQueue::Entry> CallbackQueue::Next(const std::atomic<bool>& stop) {
  std::unique_lock lock(mutex_);
  posted_.wait(lock, [&] { return closed_ || stop.load(std::memory_order_acquire) || !waiting_.empty(); });
  if (closed_ || stop.load(std::memory_order_acquire)) return nullptr;
  auto entry = waiting_.front();
  waiting_.pop_front();
  running_.push_back(entry);
  return entry;
}

void CallbackQueue::Finish(const std::shared_ptr<Entry>& entry) {
  {
    const std::lock_guard lock(mutex_);
    // Closed: released already, and the word may be gone.
    if (std::erase(running_, entry) != 0) Release(*entry);
    entry->done = true;
    waits_since_.reset();
    if (!waiting_.empty() || !running_.empty()) waits_since_ = clock_.Now();
  }
  finished_.notify_all();
}

std::optional<TimePoint> CallbackQueue::WaitsSince() {
  const std::lock_guard lock(mutex_);
  return waits_since_;
}

void CallbackQueue::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& entry : waiting_) Release(*entry);
    for (const auto& entry : running_) Release(*entry);
    waiting_.clear();
    running_.clear();
    waits_since_.reset();
  }
  posted_.notify_all();
  finished_.notify_all();
}

void CallbackQueue::WakeAll() {
  const std::lock_guard lock(mutex_);
  posted_.notify_all();
}

namespace {

void Run(void* argument, CUresult status) {
  auto* call = static_cast<HostCall*>(argument);
  const HostCall copy = *call;
  if (!call->is_repeatable) delete call;
  if (copy.word != nullptr) {
    copy.queue->Post(copy.token, status, copy.word, copy.number);
  } else {
    copy.queue->RunInClient(copy.token, status);
  }
}

}  // namespace

void CUDA_CB RunHostFunction(void* argument) { Run(argument, CUDA_SUCCESS); }
void CUDA_CB RunStreamCallback(CUstream, CUresult status, void* argument) { Run(argument, status); }

}  // namespace tally::server
