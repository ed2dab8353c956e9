// What one session expects of its future, and the GPU made ready for it (docs/arrival-hints.md).
//
// A thread sleeps on the bell of the session's arrival page. What the client says there is bounded
// (scheduler/arrival_notice.h) and paid for from the executor's budget (notices.h). A moment before work is expected
// kernels of one thread have the GPU turn to this executor's context (driver/holding_kernels.h), and hold it until the
// work is done. Nothing of this is on the launch path: the first launch after a pause notes when it came, with a few
// stores.
//
// Only while there is a best-effort executor that the GPU has to be taken from; else the client does not even ring.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "base/status.h"
#include "proto/shm/arrival_abi.h"
#include "scheduler/arrival_notice.h"
#include "server/executor/dispatch/busy_clock.h"
#include "server/executor/driver/holding_kernels.h"

namespace tally::server {

class SessionState;

class ExpectedWork final : public BusyListener {
 public:
  // Both outlive this.
  ExpectedWork(SessionState& session, shm::ArrivalPage& page) : session_(session), page_(page) {}
  ~ExpectedWork() override;

  // kResourceExhausted: no thread can be started.
  Status Start();
  // Before the session's streams and contexts go. Nothing is noticed any more. Idempotent.
  void Stop();

  void OnBusy(int device, TimePoint at) override;
  void OnSeen() override;

 private:
  void Run();
  // What the client says now, if it is new.
  void Read(TimePoint now);
  std::optional<TimePoint> TakeWorkBegun();
  // Returns when to go on.
  std::optional<TimePoint> Advance(TimePoint now);
  void Hold(std::chrono::nanoseconds duration);
  void Count();
  // At most until then, if there is a time; since it was looked at `looked_at`.
  void Sleep(std::optional<TimePoint> next, TimePoint looked_at);
  // Loaded, with the device's context current; null: it cannot be.
  HoldingKernels* KernelsOf(int device);

  SessionState& session_;
  shm::ArrivalPage& page_;
  std::atomic<bool> is_stopping_{false};
  // Of the last work that came while there was none: a request that goes on to another device begins once.
  std::atomic<uint64_t> num_begun_{0};
  std::atomic<int64_t> begun_at_ns_{0};
  std::atomic<int> device_{0};
  std::atomic<bool> is_busy_{false};               // on any device, as far as is known
  std::atomic<HoldingKernels*> holding_{nullptr};  // those that hold the GPU
  // Of the thread, as all below.
  scheduler::ArrivalNotice notice_;
  scheduler::ArrivalNotice::Counts counted_;
  uint32_t num_declared_ = 0;
  uint32_t bell_ = 0;
  uint64_t num_begun_seen_ = 0;
  std::map<int, std::unique_ptr<HoldingKernels>> kernels_;  // by device; null: they cannot be loaded
  std::thread thread_;
};

}  // namespace tally::server
