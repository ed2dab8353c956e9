#include "server/executor/dispatch/priority_dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "scheduler/look_ahead.h"
#include "scheduler/tuning.h"
#include "server/executor/channel/spin.h"
#include "server/executor/dispatch/high_priority_announcer.h"
#include "server/executor/dispatch/page_watch.h"
#include "server/executor/dispatch/run_ahead.h"
#include "server/executor/dispatch/short_launches.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/driver/event_pool.h"

namespace tally::server {
namespace {

// Longer than all but exceptional kernels (those of training steps stay under 10 ms), and an end for programs whose
// kernels wait for one another.
constexpr auto kLongestDrain = std::chrono::milliseconds(250);
// Looking for room without sleep, where there are cores to spare: short launches end within it.
constexpr auto kLongestAwake = std::chrono::microseconds(200);
constexpr auto kShortPause = std::chrono::microseconds(5);
constexpr auto kLongPause = std::chrono::microseconds(50);
// Of a tenant that is hundreds of launches ahead: several kernels end meanwhile.
constexpr auto kPauseAhead = std::chrono::microseconds(300);

class Tenant final : public GateTenant {
 public:
  explicit Tenant(const DriverTable& driver) : ahead(driver) {}
  void End() override { ahead.Clear(); }
  RunAhead ahead;
};

// Holds best-effort launches back while anybody's high-priority work runs, and bounds what is in flight.
class Restrainer {
 public:
  Restrainer(const DriverTable& driver, PageWatch& watch, std::chrono::nanoseconds starvation_bound, const Clock& clock)
      : driver_(driver), watch_(watch), starvation_bound_(starvation_bound), clock_(clock) {
    for (auto& device : devices_) device = std::make_unique<Device>(driver);
  }

  DispatchPass BeforeDispatch(const DispatchOf& of) {
    TimePoint kept_since{};  // of all waits together: a gate that opens for a moment has not let this one through
    for (;;) {
      if (is_left_to_time_slices()) return {};
      const Admission admission = AwaitOpen(of, &kept_since);
      if (admission == Admission::kCancelled) return {.may_go = false};
      if (admission == Admission::kGranted) return {};
      const TimePoint since = clock_.Now();
      while (!watch_.IsClosed(of.device)) {
        RunAhead* const ahead = MayRunAhead(of);
        if (of.can_yield || !(BoundsWhatIsInFlight(of) || ahead != nullptr) || watch_.is_open()) return {};
        if (of.tenant != nullptr && of.tenant->has_left()) return {.may_go = false};
        const TimePoint now = clock_.Now();
        if (ahead != nullptr) {
          if (ahead->HasRoom() || now - since >= kLongestDrain) return {};
          std::this_thread::sleep_for(kPauseAhead);
          continue;
        }
        if (!IsShort(of)) {
          const Room room = RoomOn(DeviceOf(of), now - since);
          if (room != Room::kNone) return {.is_forced = room == Room::kForced};
        } else if (void* place = DeviceOf(of).short_launches.TryEnter(of, now)) {
          return {.record = place};
        }
        Pause(of, now - since);
      }
    }
  }

  void AfterDispatch(const DispatchOf& of, const DispatchPass& pass) {
    Device& device = DeviceOf(of);
    if (pass.record != nullptr) return device.short_launches.Leave(pass.record, of.stream);
    if (is_left_to_time_slices()) return;
    if (RunAhead* const ahead = MayRunAhead(of)) return ahead->OnLaunch(of.stream, device.events);
    if (of.can_yield || IsShort(of) || !BoundsWhatIsInFlight(of)) return;
    CUevent event = nullptr;
    if (device.events.Acquire(&event) != CUDA_SUCCESS) return;
    if (driver_.cuEventRecord(event, of.stream) != CUDA_SUCCESS) return device.events.Release(event);
    const std::lock_guard lock(device.mutex);
    device.in_flight.push_back({event, clock_.Now()});
  }

  void ExpectSuspension(int device, bool is_expected) {
    devices_[static_cast<size_t>(device)]->is_suspension_expected.store(is_expected, std::memory_order_relaxed);
  }

  void LeaveToTimeSlices(bool is_left) { is_left_to_time_slices_.store(is_left, std::memory_order_relaxed); }
  bool is_left_to_time_slices() const { return is_left_to_time_slices_.load(std::memory_order_relaxed); }

  void Tune(const scheduler::Tuning& tuning) {
    turnaround_ns_.store(tuning.turnaround_threshold.count(), std::memory_order_relaxed);
    for (auto& device : devices_) {
      device->short_launches.SetTurnaroundThreshold(tuning.turnaround_threshold);
      const std::lock_guard lock(device->mutex);
      device->look_ahead.SetTargetDrain(tuning.target_drain);
    }
  }

 private:
  struct InFlight {
    CUevent event;
    TimePoint dispatched_at;
  };
  struct Device {
    explicit Device(const DriverTable& driver) : events(driver), short_launches(driver, kLongestDrain) {}
    EventPool events;
    ShortLaunches short_launches;
    std::atomic<bool> is_suspension_expected{false};
    std::mutex mutex;
    std::deque<InFlight> in_flight;  // the others; guarded by mutex, as below
    scheduler::LookAhead look_ahead{{}};
    TimePoint last_grant{};
  };

  enum class Admission : uint8_t { kOpen, kGranted, kCancelled };
  enum class Room : uint8_t { kNone, kSome, kForced };

  // Nobody waits for what is in flight where the GPU takes it away in the middle of any kernel and does not come back
  // to it before the high-priority work is done.
  bool BoundsWhatIsInFlight(const DispatchOf& of) {
    return watch_.IsHighPriorityPresent() && !IsSuspensionExpected(of);
  }

  // Where that is so: what it can still be bounded by. Null: it is not, or is nobody's.
  RunAhead* MayRunAhead(const DispatchOf& of) {
    if (of.tenant == nullptr || of.can_yield || !watch_.IsHighPriorityPresent()) return nullptr;
    if (!IsSuspensionExpected(of)) return nullptr;
    return &static_cast<Tenant*>(of.tenant)->ahead;
  }

  bool IsSuspensionExpected(const DispatchOf& of) {
    return DeviceOf(of).is_suspension_expected.load(std::memory_order_relaxed);
  }

  Device& DeviceOf(const DispatchOf& of) { return *devices_[static_cast<size_t>(of.device)]; }

  // Slices and short kernels say so themselves, of copies and fills the guess does.
  bool IsShort(const DispatchOf& of) const {
    if (of.is_short || of.kind.first_guess == std::chrono::nanoseconds(0)) return of.is_short;
    const std::chrono::nanoseconds general(turnaround_ns_.load(std::memory_order_relaxed));
    const auto turnaround = of.turnaround != std::chrono::nanoseconds(0) ? of.turnaround : general;
    return scheduler::IsShort(of.kind.first_guess, turnaround);
  }

  Admission AwaitOpen(const DispatchOf& of, TimePoint* kept_since) {
    if (!watch_.IsClosed(of.device)) return Admission::kOpen;
    const TimePoint since = clock_.Now();
    if (*kept_since == TimePoint{}) *kept_since = since;
    Admission admission = Admission::kOpen;
    while (watch_.IsClosed(of.device) && admission == Admission::kOpen && !is_left_to_time_slices()) {
      watch_.WaitWhileClosed(of.device, PageWatch::kLook);
      if (of.tenant != nullptr && of.tenant->has_left()) {
        admission = Admission::kCancelled;
      } else if (TryGrant(DeviceOf(of), *kept_since)) {
        admission = Admission::kGranted;
      }
    }
    if (of.tenant != nullptr) {
      of.tenant->figures.Add("held_launches");
      of.tenant->figures.Add("held_ns", clock_.Now() - since);
    }
    return admission;
  }

  // Who has waited for the starvation bound goes, unless another one has just gone so.
  bool TryGrant(Device& device, TimePoint since) {
    const TimePoint now = clock_.Now();
    if (starvation_bound_.count() == 0 || now - since < starvation_bound_) return false;
    const std::lock_guard lock(device.mutex);
    if (now - device.last_grant < starvation_bound_) return false;
    device.last_grant = now;
    return true;
  }

  // Some: fewer are in flight than have lately drained quickly. Who has waited long goes all the same: a kernel may
  // itself wait for one that this thread, or another of its session, has yet to launch (two devices that exchange data,
  // two streams of one device).
  Room RoomOn(Device& device, std::chrono::nanoseconds waited) {
    const std::lock_guard lock(device.mutex);
    while (device.in_flight.size() >= device.look_ahead.depth()) {
      const InFlight oldest = device.in_flight.front();
      const bool is_drained = driver_.cuEventQuery(oldest.event) != CUDA_ERROR_NOT_READY;
      if (!is_drained && waited < kLongestDrain) return Room::kNone;
      device.look_ahead.OnDrained(clock_.Now() - oldest.dispatched_at);
      device.events.Release(oldest.event);
      device.in_flight.pop_front();
      if (!is_drained) return Room::kForced;
    }
    return Room::kSome;
  }

  void Pause(const DispatchOf& of, std::chrono::nanoseconds waited) {
    if (IsShort(of) && waited < kLongestAwake && MaySpinLong()) {
      PauseAwake();
    } else {
      std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(waited, kShortPause, kLongPause));
    }
  }

  const DriverTable& driver_;
  PageWatch& watch_;
  const std::chrono::nanoseconds starvation_bound_;  // zero: none
  std::atomic<bool> is_left_to_time_slices_{false};
  std::atomic<int64_t> turnaround_ns_{scheduler::Tuning{}.turnaround_threshold.count()};
  const Clock& clock_;
  std::array<std::unique_ptr<Device>, shm::kActivityDevices> devices_;
};

class PriorityDispatch final : public DispatchGate {
 public:
  PriorityDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page,
                   std::chrono::nanoseconds starvation_bound, const Clock& clock)
      : driver_(driver),
        page_(std::move(page)),
        watch_(*page_, /*minds_hold_off=*/true),
        announcer_(driver, *page_),
        restrainer_(driver, watch_, starvation_bound, clock) {}

  std::unique_ptr<GateTenant> AddTenant(const scheduler::TenantShare&) override {
    return std::make_unique<Tenant>(driver_);
  }
  DispatchPass BeforeDispatch(const DispatchOf& of) override {
    if (!of.is_high_priority) return restrainer_.BeforeDispatch(of);
    announcer_.BeforeDispatch(of.device);
    return {};
  }
  void AfterDispatch(const DispatchOf& of, const DispatchPass& pass) override {
    of.is_high_priority ? announcer_.AfterDispatch(of.device, of.stream) : restrainer_.AfterDispatch(of, pass);
  }
  bool holds_copies() const override { return page_->HighPriorityPresent() && !restrainer_.is_left_to_time_slices(); }
  void Tune(const scheduler::Tuning& tuning) override {
    announcer_.SetHoldOffBounds(tuning.min_hold_off, tuning.max_hold_off);
    restrainer_.Tune(tuning);
  }
  void ExpectSuspension(int device, bool is_expected) override { restrainer_.ExpectSuspension(device, is_expected); }
  void LeaveToTimeSlices(bool is_left) override { restrainer_.LeaveToTimeSlices(is_left); }
  void Open() override { watch_.Open(); }
  HighPriorityWatch* watch() override { return &watch_; }

 private:
  const DriverTable& driver_;
  const std::unique_ptr<ActivityPage> page_;
  PageWatch watch_;
  HighPriorityAnnouncer announcer_;
  Restrainer restrainer_;
};

}  // namespace

std::unique_ptr<DispatchGate> CreatePriorityDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page,
                                                     std::chrono::nanoseconds starvation_bound, const Clock& clock) {
  return std::make_unique<PriorityDispatch>(driver, std::move(page), starvation_bound, clock);
}

}  // namespace tally::server
