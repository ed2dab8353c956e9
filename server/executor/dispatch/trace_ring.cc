#include "server/executor/dispatch/trace_ring.h"

#include <algorithm>
#include <utility>

namespace tally::server {

TraceRing::TraceRing(CompletionSource& completions, uint64_t session_id, uint16_t device)
    : completions_(completions), session_id_(session_id), device_(device) {
  const auto prepare = [this](TraceRecord& record) {
    // One that could not be prepared stays away: its run has no times on the GPU.
    (void)completions_.Prepare(&record.begin, MarkKind::kTimed);
    (void)completions_.Prepare(&record.end, MarkKind::kTimed);
  };
  std::ranges::for_each(slots_, prepare);
  for (Queue& queue : queues_) prepare(queue.run);
}

TraceRing::Queue& TraceRing::QueueOf(CUstream stream) {
  const uint32_t num_known = std::min(num_queues_, kQueues);
  for (uint32_t i = 0; i < num_known; ++i) {
    if (queues_[i].stream == stream) return queues_[i];
  }
  // The one that was seen first makes room; what it had not closed is lost.
  Queue& queue = queues_[num_queues_ % kQueues];
  if (queue.run.event.num_launches != 0)
    num_dropped_.fetch_add(queue.run.event.num_launches, std::memory_order_relaxed);
  queue.stream = stream;
  queue.number = num_queues_++;
  queue.run.event = {};
  return queue;
}

void TraceRing::Open(Queue& queue) {
  control::TraceEvent& event = queue.run.event;
  event.session_id = session_id_;
  event.device = device_;
  event.queue = queue.number;
  event.kind = static_cast<uint16_t>(control::TraceKind::kRun);
  // A mark that is to be made first would need a lock.
  if (queue.run.begin.exists()) (void)completions_.Put(queue.stream, &queue.run.begin, MarkKind::kTimed);
}

bool TraceRing::MaySpend(TimePoint now) {
  saved_since_ = std::max(saved_since_, now - kMostSaved * kPerRecord);
  if (now - saved_since_ < kPerRecord) return false;
  saved_since_ += kPerRecord;
  return true;
}

void TraceRing::EndRun(CUstream stream, TimePoint now) {
  Queue& queue = QueueOf(stream);
  if (queue.run.event.num_launches == 0) return;
  queue.run.event.issued_ns = Ns(now);
  Close(queue);
}

void TraceRing::Close(Queue& queue) {
  const uint32_t num_launches = std::exchange(queue.run.event.num_launches, 0);
  TraceRecord* const slot = FreeSlot();
  if (slot == nullptr) {
    num_dropped_.fetch_add(num_launches, std::memory_order_relaxed);
    return;
  }
  if (queue.run.end.exists()) (void)completions_.Put(queue.stream, &queue.run.end, MarkKind::kTimed);
  slot->event = queue.run.event;
  slot->event.num_launches = num_launches;
  slot->name = queue.run.name;
  // Those of the slot are prepared, and serve the next run.
  std::swap(slot->begin, queue.run.begin);
  std::swap(slot->end, queue.run.end);
  Publish();
}

void TraceRing::CloseRun(CUstream stream) {
  Queue& queue = QueueOf(stream);
  if (queue.run.event.num_launches != 0) Close(queue);
}

void TraceRing::AddWait(CUstream stream, TimePoint from, TimePoint to, control::TraceReason reason) {
  const Queue& queue = QueueOf(stream);
  TraceRecord* const slot = FreeSlot();
  if (slot == nullptr) {
    num_dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  slot->event = {};
  slot->event.session_id = session_id_;
  slot->event.device = device_;
  slot->event.queue = queue.number;
  slot->event.kind = static_cast<uint16_t>(control::TraceKind::kWait);
  slot->event.reason = static_cast<uint16_t>(reason);
  slot->event.begin_ns = Ns(from);
  slot->event.end_ns = Ns(to);
  slot->name[0] = '\0';
  Publish();
}

TraceRecord* TraceRing::FreeSlot() {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  if (head - tail_.load(std::memory_order_acquire) >= kSlots) return nullptr;
  return &slots_[head % kSlots];
}

bool TraceRing::Take(TraceRecord* record) {
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (tail == head_.load(std::memory_order_acquire)) return false;
  TraceRecord& slot = slots_[tail % kSlots];
  record->event = slot.event;
  record->name = slot.name;
  if (slot.event.kind == static_cast<uint16_t>(control::TraceKind::kRun)) {
    record->begin = std::exchange(slot.begin, Mark());
    record->end = std::exchange(slot.end, Mark());
    (void)completions_.Prepare(&slot.begin, MarkKind::kTimed);
    (void)completions_.Prepare(&slot.end, MarkKind::kTimed);
  }
  tail_.store(tail + 1, std::memory_order_release);
  return true;
}

}  // namespace tally::server
