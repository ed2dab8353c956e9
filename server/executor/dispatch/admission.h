// The one place every kernel and graph launch of this executor passes, and every copy and fill of best-effort sessions:
// what stands between a validated launch and the driver. Best-effort launches are held back here while high-priority
// work runs, and share the GPU by a policy (policy_dispatch.h).
//
// Thread-safe; called by channels' threads that hold their session's sequencer, so a wait here stalls that session and
// no other.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "scheduler/launch.h"
#include "scheduler/tuning.h"
#include "server/executor/dispatch/figure_counters.h"
#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {

// One session as admission knows it. Thread-safe.
class AdmissionTenant {
 public:
  virtual ~AdmissionTenant() = default;
  FigureCounters figures;  // what admission counts of it
  // In force from the next launch on.
  virtual void SetShare(const scheduler::TenantShare&) {}
  // The client is gone: what of its launches waits is not made any more, and no later one.
  virtual void Leave() { has_left_.store(true, std::memory_order_release); }
  // A request of a high-priority session took so long.
  virtual void OnRequest(std::chrono::nanoseconds) {}
  // Nothing of the session is on the GPU any more and no channel of it is left; a context is current.
  virtual void End() {}
  bool has_left() const { return has_left_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> has_left_{false};
};

// Whose launch it is, and where it goes. What it is says scheduler::LaunchAsked.
struct DispatchPlace {
  int device = 0;  // ordinal
  bool is_high_priority = false;
  CUstream stream = nullptr;
  AdmissionTenant* tenant = nullptr;  // as AddTenant made it
};

// What BeforeDispatch answers and AfterDispatch is to be told.
struct DispatchPass {
  bool may_go = true;            // false: the client has left; do not launch
  void* record = nullptr;        // admission's own
  uint32_t sample = UINT32_MAX;  // likewise
  // Nothing that is in flight had ended for so long that it may wait for this one: it goes all the same.
  bool is_forced = false;
  bool is_noted() const { return record != nullptr || sample != UINT32_MAX; }
};

class Admission {
 public:
  virtual ~Admission() = default;
  // Ends before admission.
  virtual std::unique_ptr<AdmissionTenant> AddTenant(const scheduler::TenantShare&) {
    return std::make_unique<AdmissionTenant>();
  }
  // May wait until the launch may go. Of what is asked, `duration` is what is known until one of its kind was timed
  // (zero: nothing); `stream` and `fill` are admission's to fill in, and the threshold if it is zero.
  virtual DispatchPass BeforeDispatch(const DispatchPlace&, const scheduler::LaunchAsked&) { return {}; }
  // The launch was handed to its stream (or failed): never waits. Exactly one per BeforeDispatch that let it go.
  virtual void AfterDispatch(const DispatchPlace&, const DispatchPass&) {}
  // On that device best-effort contexts of this executor are descheduled while high-priority work keeps coming, or no
  // longer are: what is in flight then cannot get in its way.
  virtual void ExpectDescheduling(int /*device*/, bool) {}
  // Best-effort launches are not to be held back any more, or are again: the GPU takes turns between the classes.
  virtual void LeaveToTimeSlices(bool) {}
  // Whether copies and fills of best-effort sessions on a device are to pass it at present, as launches do, large ones
  // in pieces. One load.
  virtual bool HoldsCopies(int /*device*/) const { return false; }
  // On which devices (bits) there are best-effort contexts against which the GPU may be held (gap_hold.h).
  virtual void AllowHolding(uint64_t /*devices*/) {}
  // Whether tenants are to be told of requests. Constant.
  virtual bool wants_requests() const { return false; }
  // Within what time launches that can yield give the GPU back, and short ones and all others drain; for how long they
  // stay back after high-priority work. From the next launch on.
  virtual void Tune(const scheduler::Tuning&) {}
  // Ends all waits for good: the executor is shutting down.
  virtual void Open() {}
  // Null: nobody on this machine has priority, ever.
  virtual HighPriorityWatch* watch() { return nullptr; }
};

}  // namespace tally::server
