#include "server/session/callback_queue.h"

#include <algorithm>

namespace tally::server {

void CallbackQueue::RunInClient(uint64_t token, CUresult stream_status) {
  auto entry = std::make_shared<Entry>();
  entry->token = token;
  entry->stream_status = stream_status;
  std::unique_lock lock(mutex_);
  if (closed_) return;
  waiting_.push_back(entry);
  posted_.notify_one();
  if (!finished_.wait_for(lock, timeout_, [&] { return entry->done || closed_; })) {
    std::erase(waiting_, entry);
    on_timeout_();  // the lock is held: Close waits until this is over
  }
}

std::shared_ptr<CallbackQueue::Entry> CallbackQueue::Next(const std::atomic<bool>& stop) {
  std::unique_lock lock(mutex_);
  posted_.wait(lock, [&] { return closed_ || stop.load(std::memory_order_acquire) || !waiting_.empty(); });
  if (closed_ || stop.load(std::memory_order_acquire)) return nullptr;
  auto entry = waiting_.front();
  waiting_.pop_front();
  return entry;
}

void CallbackQueue::Finish(const std::shared_ptr<Entry>& entry) {
  {
    const std::lock_guard lock(mutex_);
    entry->done = true;
  }
  finished_.notify_all();
}

void CallbackQueue::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    waiting_.clear();
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
  const std::shared_ptr<CallbackQueue> queue = call->queue;
  const uint64_t token = call->token;
  if (!call->is_repeatable) delete call;
  queue->RunInClient(token, status);
}

}  // namespace

void CUDA_CB RunHostFunction(void* argument) { Run(argument, CUDA_SUCCESS); }
void CUDA_CB RunStreamCallback(CUstream, CUresult status, void* argument) { Run(argument, status); }

}  // namespace tally::server
