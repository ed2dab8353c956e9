#include "server/gpu/priority_dispatch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "scheduler/look_ahead.h"
#include "server/gpu/driver_table.h"
#include "server/gpu/high_priority_announcer.h"
#include "server/gpu/page_watch.h"

namespace tally::server {
namespace {

// Longer than all but exceptional kernels (those of training steps stay under 10 ms), and an end for programs whose
// kernels wait for one another.
constexpr auto kLongestDrain = std::chrono::milliseconds(250);
constexpr unsigned kQuietEvent = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;

// Holds best-effort launches back while anybody's high-priority work runs, and bounds what is in flight.
class Restrainer {
 public:
  Restrainer(const DriverTable& driver, PageWatch& watch) : driver_(driver), watch_(watch) {}

  // False: the client has left.
  bool BeforeDispatch(const DispatchOf& of) {
    if (!AwaitOpen(of)) return false;
    while (!of.can_yield && watch_.HighPriorityPresent() && !watch_.is_open()) {
      if (!DrainOne(devices_[static_cast<size_t>(of.device)])) return true;
      if (!AwaitOpen(of)) return false;
    }
    return true;
  }

  void AfterDispatch(const DispatchOf& of) {
    if (of.can_yield || !watch_.HighPriorityPresent()) return;
    Device& device = devices_[static_cast<size_t>(of.device)];
    std::lock_guard lock(device.mutex);
    CUevent event = nullptr;
    if (!device.free_events.empty()) {
      event = device.free_events.back();
      device.free_events.pop_back();
    } else if (driver_.cuEventCreate(&event, kQuietEvent) != CUDA_SUCCESS) {
      return;
    }
    if (driver_.cuEventRecord(event, of.stream) == CUDA_SUCCESS) {
      device.in_flight.push_back({event, clock_.Now()});
    } else {
      device.free_events.push_back(event);
    }
  }

 private:
  struct InFlight {
    CUevent event;
    TimePoint dispatched_at;
  };
  struct Device {
    std::mutex mutex;
    std::deque<InFlight> in_flight;  // guarded by mutex, as all below
    std::vector<CUevent> free_events;
    scheduler::LookAhead look_ahead{{}};
  };

  bool AwaitOpen(const DispatchOf& of) {
    if (!watch_.IsClosed(of.device)) return true;
    const TimePoint since = clock_.Now();
    bool has_left = false;
    while (watch_.IsClosed(of.device) && !has_left) {
      watch_.WaitWhileClosed(of.device, PageWatch::kLook);
      has_left = of.tenant != nullptr && of.tenant->has_left();
    }
    if (of.tenant != nullptr) {
      of.tenant->figures.num_held.fetch_add(1, std::memory_order_relaxed);
      of.tenant->figures.held_ns.fetch_add((clock_.Now() - since).count(), std::memory_order_relaxed);
    }
    return !has_left;
  }

  // Waits for the oldest launch if too many are in flight. Returns whether it waited. Not for long: a kernel may itself
  // wait for one that this thread, or another of its session, has yet to launch (two devices that exchange data, two
  // streams of one device).
  bool DrainOne(Device& device) {
    InFlight oldest{};
    {
      std::lock_guard lock(device.mutex);
      if (device.in_flight.size() < device.look_ahead.depth()) return false;
      oldest = device.in_flight.front();
      device.in_flight.pop_front();
    }
    const bool is_drained = AwaitBriefly(oldest.event);
    std::lock_guard lock(device.mutex);
    device.look_ahead.OnDrained(clock_.Now() - oldest.dispatched_at);
    device.free_events.push_back(oldest.event);
    return is_drained;
  }

  bool AwaitBriefly(CUevent event) {
    const TimePoint until = clock_.Now() + kLongestDrain;
    auto pause = std::chrono::microseconds(5);
    while (driver_.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
      if (clock_.Now() >= until) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(50));
    }
    return true;
  }

  const DriverTable& driver_;
  PageWatch& watch_;
  const SteadyClock clock_;
  std::array<Device, shm::kActivityDevices> devices_;
};

class PriorityDispatch final : public DispatchGate {
 public:
  PriorityDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page)
      : page_(std::move(page)),
        watch_(*page_, /*minds_hold_off=*/true),
        announcer_(driver, *page_),
        restrainer_(driver, watch_) {}

  DispatchPass BeforeDispatch(const DispatchOf& of) override {
    if (!of.is_high_priority) return {.may_go = restrainer_.BeforeDispatch(of)};
    announcer_.BeforeDispatch(of.device);
    return {};
  }
  void AfterDispatch(const DispatchOf& of, const DispatchPass&) override {
    of.is_high_priority ? announcer_.AfterDispatch(of.device, of.stream) : restrainer_.AfterDispatch(of);
  }
  void Open() override { watch_.Open(); }
  HighPriorityWatch* watch() override { return &watch_; }

 private:
  const std::unique_ptr<ActivityPage> page_;
  PageWatch watch_;
  HighPriorityAnnouncer announcer_;
  Restrainer restrainer_;
};

}  // namespace

std::unique_ptr<DispatchGate> CreatePriorityDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page) {
  return std::make_unique<PriorityDispatch>(driver, std::move(page));
}

}  // namespace tally::server
