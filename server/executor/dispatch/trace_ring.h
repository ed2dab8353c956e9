// What one session puts on one GPU while it is traced: a bounded ring of records, each with the marks that will say
// when it ran.
//
//   session (holder of the sequencer)                      collector (trace.h)
//     Begin  mark  launch  mark  End  --> slot --> slot --> Take, prepares the slot's marks again
//
// An operation that has a record of its own costs two marks. Operations that come faster than one every kPerRecord for
// long share one, with the name of the first and how many they are: a *run*. So marks cost a program that launches all
// the time a percent or two, and one that launches in bursts gets each launch by itself.
//
// No lock and no allocation on the session's side: marks are prepared, and a ring that is full drops what comes and
// counts it. Nothing is put on a stream but around an operation on it, or a wait for it: by then it may be gone, or
// its work may be on its way into a graph.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "proto/control/trace_abi.h"
#include "server/executor/driver/completion_source.h"

namespace tally::server {

using TraceName = std::array<char, control::kTraceNameBytes>;

struct TraceRecord {
  control::TraceEvent event{};  // without what the marks will say
  TraceName name{};
  Mark begin, end;  // of a run
};

class TraceRing {
 public:
  static constexpr std::chrono::nanoseconds kPerRecord = std::chrono::microseconds(100);
  static constexpr int64_t kMostSaved = 64;  // records that a session which was silent may make at once

  // `completions`: of the device, with this ordinal; outlives the ring. Prepares marks: the device's context is
  // current.
  TraceRing(CompletionSource& completions, uint64_t session_id, uint16_t device);
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  // The session's side. By the holder of its sequencer, with the context current.

  // An operation may be handed to the driver. Its name is asked for only if it is needed: write_name(TraceName*).
  template <typename WriteName>
  void Begin(CUstream stream, TimePoint asked, const WriteName& write_name) {
    Queue& queue = QueueOf(stream);
    queue.run.event.issued_ns = Ns(asked);
    if (queue.run.event.num_launches++ != 0) return;
    queue.run.event.asked_ns = Ns(asked);
    write_name(&queue.run.name);
    Open(queue);
  }
  // It was. The clock is read if the record ends here: a reading takes 25 ns.
  void End(CUstream stream, TimePoint asked, const Clock& clock) {
    if (MaySpend(asked)) EndRun(stream, clock.Now());
  }
  // The session is about to wait for the stream, which is not being captured: what comes then is another run.
  void CloseRun(CUstream stream);
  void AddWait(CUstream stream, TimePoint from, TimePoint to, control::TraceReason reason);

  // The collector's side; one thread at a time, with the context current.

  // False: nothing is there.
  bool Take(TraceRecord* record);
  // Since it was last asked.
  uint64_t TakeNumDropped() { return num_dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kSlots = 256;
  static constexpr uint32_t kQueues = 8;

  struct Queue {
    CUstream stream = nullptr;
    uint32_t number = 0;
    TraceRecord run;  // open while it has launches
  };

  static uint64_t Ns(TimePoint time) { return static_cast<uint64_t>(time.time_since_epoch().count()); }
  Queue& QueueOf(CUstream stream);
  void Open(Queue& queue);
  void EndRun(CUstream stream, TimePoint now);
  void Close(Queue& queue);
  // Null: the ring is full.
  TraceRecord* FreeSlot();
  void Publish() { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  bool MaySpend(TimePoint now);

  CompletionSource& completions_;
  const uint64_t session_id_;
  const uint16_t device_;

  // The session's.
  std::array<Queue, kQueues> queues_;
  uint32_t num_queues_ = 0;  // ever seen
  TimePoint saved_since_{};  // a record may be made for each kPerRecord since then
  std::atomic<uint64_t> num_dropped_{0};

  std::array<TraceRecord, kSlots> slots_;
  std::atomic<uint32_t> head_{0};  // records ever published
  std::atomic<uint32_t> tail_{0};  // records ever taken
};

}  // namespace tally::server
