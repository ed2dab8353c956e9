// Records what the sessions of this executor do, for a while: `tallyctl trace` (docs/trace.md).
//
//   sessions --TraceRing--> collector thread --> events, bounded --> Stop
//   others (contexts off the GPU, requests) --Add-------^
//
// While nobody traces there is no thread and no ring: a launch asks TraceSwitch, which is one load and a branch. Rings
// are made when recording begins, or when a session or the context of a device comes later.
//
// Thread-safe. Lock order: after executor and session, before a completion source. The collector calls the driver with
// its lock held: nobody who holds a sequencer takes that lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "proto/control/trace_abi.h"
#include "proto/shm/activity_abi.h"
#include "server/executor/dispatch/trace_ring.h"
#include "server/executor/driver/devices.h"

namespace tally::server {

class Trace;

// A session, as recording knows it. Its rings stay until it leaves, for the next recording; so whoever has got one may
// use it.
class TraceSwitch {
 public:
  TraceSwitch() = default;  // of nobody: it is never traced
  // No thread of the session puts anything any more; the devices are still there.
  ~TraceSwitch();
  // Once, before the session puts anything. `trace` outlives this.
  void Enter(Trace& trace, uint64_t session_id, uint32_t uid, std::optional<uint32_t> owner_uid);
  TraceSwitch(const TraceSwitch&) = delete;
  TraceSwitch& operator=(const TraceSwitch&) = delete;

  // Null: this session is not traced. By the holder of its sequencer.
  TraceRing* RingOf(int device) const {
    if (!is_on_.load(std::memory_order_relaxed)) [[likely]]
      return nullptr;
    return rings_[static_cast<size_t>(device)].load(std::memory_order_acquire);
  }
  // A request of the session took so long until now. From any thread.
  void OnRequest(TimePoint now, std::chrono::nanoseconds took);

 private:
  friend class Trace;
  Trace* trace_ = nullptr;
  uint64_t session_id_ = 0;
  uint32_t uid_ = 0;
  std::optional<uint32_t> owner_uid_;  // of its grant
  std::atomic<bool> is_on_{false};
  std::array<std::atomic<TraceRing*>, shm::kActivityDevices> rings_{};  // owned; made by the trace
};

// What was recorded.
struct TraceResult {
  control::TraceFileHeader header{};
  std::vector<control::TraceEvent> events;
  std::vector<std::string> names;
};

class Trace {
 public:
  // All outlive this.
  Trace(const DriverTable& driver, Devices& devices, const Clock& clock)
      : driver_(driver), devices_(devices), clock_(clock) {}
  ~Trace() { (void)Stop(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Of all sessions, or those of one user and of the grants that are his, until Stop. kAlreadyExists: somebody records
  // already; kResourceExhausted: no thread can be started.
  Status Start(std::optional<uint32_t> uid);
  // Waits at most a moment for what is on the GPU: what has not ended then has no end.
  TraceResult Stop();
  // Of the executor's own; nothing if nobody records. Never waits for the driver.
  void Add(control::TraceKind kind, int device, TimePoint begin, TimePoint end);

 private:
  friend class TraceSwitch;
  struct DeviceClock {  // matches the GPU's clock with ours
    CUstream stream = nullptr;
    Mark anchor;
    int64_t anchor_ns = 0;  // when that was
    Mark next;              // on its way: an anchor that is not so far from what is to be dated
  };

  void Enter(TraceSwitch& session);
  void Leave(TraceSwitch& session);
  void AddEvent(const control::TraceEvent& event);
  void Run();
  // Below: with mutex_.
  bool IsWanted(const TraceSwitch& session) const {
    return !only_uid_ || *only_uid_ == session.uid_ || only_uid_ == session.owner_uid_;
  }
  void Prepare(TraceSwitch& session);
  // Rings, marks and clocks of devices that have a context by now.
  void PrepareAll();
  bool MakeCurrent(int device);
  void MatchClock(int device);
  void MoveAnchor(DeviceClock& clock, CompletionSource& completions);
  void TakeFrom(TraceSwitch& session);
  void Collect();
  void Finish(TraceRecord& record);
  // On our clock; 0: the mark has not ended.
  uint64_t TimeOf(const Mark& mark, int device);
  uint32_t NumberOf(const TraceName& name);

  const DriverTable& driver_;
  Devices& devices_;
  const Clock& clock_;
  std::atomic<bool> is_on_{false};
  std::thread collector_;

  std::mutex mutex_;
  std::vector<TraceSwitch*> sessions_;  // guarded by mutex_, as all below
  std::optional<uint32_t> only_uid_;
  std::array<DeviceClock, shm::kActivityDevices> clocks_;
  std::deque<TraceRecord> pending_;  // marks have not ended
  std::map<std::string, uint32_t, std::less<>> names_;
  TimePoint began_{};
  TimePoint anchored_at_{};
  uint64_t num_dropped_ = 0;
  uint64_t clock_error_ns_ = 0;

  std::mutex events_mutex_;  // taken last, and for no longer than it takes to copy an event
  std::vector<control::TraceEvent> events_;
  uint64_t num_events_dropped_ = 0;
};

// Into a file of at least kTraceFileBytes, as proto/control/trace_abi.h says.
Status WriteTrace(const TraceResult& result, int fd);

}  // namespace tally::server
