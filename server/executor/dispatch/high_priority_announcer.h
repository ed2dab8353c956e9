// Announces high-priority work of this executor on the activity page: busy before a launch, idle with a hold-off once
// everything that was launched is complete. One watcher thread per device in use looks now and then until then.
//
// Each launch puts a mark, or moves the one of its stream: which is the last of a busy period nobody knows beforehand,
// and afterwards its stream may be gone, or be capturing.
//
// Thread-safe. The device's primary context must be current on the threads that call it, as it is on channel threads.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "scheduler/hold_off_rule.h"
#include "server/executor/dispatch/activity_page.h"
#include "server/executor/dispatch/gap_hold.h"
#include "server/executor/driver/devices.h"

namespace tally::server {

class HighPriorityAnnouncer {
 public:
  // All outlive this.
  // `may_hold`: the GPU may be held in gaps (gap_hold.h), once that is allowed.
  HighPriorityAnnouncer(const DriverTable& driver, Devices& devices, ActivityPage& page, const Clock& clock,
                        bool may_hold = false);
  ~HighPriorityAnnouncer();
  HighPriorityAnnouncer(const HighPriorityAnnouncer&) = delete;
  HighPriorityAnnouncer& operator=(const HighPriorityAnnouncer&) = delete;

  struct Launching {
    bool begins_request;      // the first launch since its session has waited for its last request
    bool wants_hold;          // in the gap behind it the GPU is better held
    FigureCounters& figures;  // of the session
  };
  // `device` is an ordinal. Never waits for the GPU.
  void BeforeDispatch(int device, const Launching& launching);
  void AfterDispatch(int device, CUstream stream);
  // Of the hold-off, from now on.
  void SetHoldOffBounds(std::chrono::nanoseconds least, std::chrono::nanoseconds most);
  // On these devices (bits) there are best-effort contexts that the GPU would turn to in gaps. On none until then.
  void AllowHolding(uint64_t devices) { allowed_devices_.store(devices, std::memory_order_relaxed); }
  // Gaps of some device may be held, and are such that they would be.
  bool WouldHoldAnywhere() const { return (HeldDevices() & wanting_devices_.load(std::memory_order_relaxed)) != 0; }
  bool may_hold() const { return may_hold_; }

 private:
  struct Device {
    std::mutex mutex;
    std::condition_variable changed;
    bool stopping = false;                    // guarded by mutex, as all below
    bool is_busy = false;                     // what the page says
    int num_dispatching = 0;                  // between Before and After
    std::atomic<uint32_t> num_dispatched{0};  // written with the mutex held
    std::vector<Mark> last_work;              // one for each stream with work since the watcher last took them
    scheduler::HoldOffRule hold_off_rule{{}};
    std::atomic<bool> wants_hold{false};  // as the last launch said
    std::unique_ptr<GapHold> gap_hold;    // null: never held; there since before the watcher
    std::thread watcher;
  };

  // False: no thread can be started.
  bool StartWatcher(int index);
  void Watch(int index);
  uint64_t HeldDevices() const {
    return allowed_devices_.load(std::memory_order_relaxed) & ~refused_devices_.load(std::memory_order_relaxed);
  }
  bool IsHoldingAllowed(int index) const { return (HeldDevices() >> index & 1) != 0; }
  bool MayHold(int index) const {
    return IsHoldingAllowed(index) && devices_[static_cast<size_t>(index)].wants_hold.load(std::memory_order_relaxed);
  }
  // GapHold::would_hold of that device may have changed; under its mutex.
  void NoteWouldHold(int index);
  // Until the mark, of that device, has ended.
  void AwaitMark(const Mark& mark, int index);
  // Until more work comes, or the GPU was held for long enough.
  void HoldUntil(TimePoint until, Device& device, std::unique_lock<std::mutex>& lock);

  const DriverTable& driver_;
  Devices& all_devices_;
  ActivityPage& page_;
  const Clock& clock_;
  const bool may_hold_;
  std::atomic<uint64_t> allowed_devices_{0};
  std::atomic<uint64_t> refused_devices_{0};  // by the driver
  std::atomic<uint64_t> wanting_devices_{0};  // GapHold::would_hold, at the beginning of their last gaps
  std::once_flag claimed_;
  bool can_announce_ = false;  // set once, before any Device is used
  std::array<Device, shm::kActivityDevices> devices_;
};

}  // namespace tally::server
