#include "server/gpu/priority_dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "scheduler/look_ahead.h"
#include "scheduler/priority_gate.h"
#include "server/gpu/driver_table.h"

namespace tally::server {
namespace {

// Longer than all but exceptional kernels (those of training steps stay under 10 ms), and an end for programs whose
// kernels wait for one another.
constexpr auto kLongestDrain = std::chrono::milliseconds(250);
// How often at most the watcher looks whether busy high-priority streams have come to an end: an interrupt and a
// wake-up at every kernel's end would slow down what it watches.
constexpr auto kBusyPeriod = std::chrono::microseconds(50);
// The longest that a best-effort thread sleeps without looking whether the executor ends.
constexpr auto kLook = std::chrono::milliseconds(10);
constexpr unsigned kQuietEvent = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;

// Announces high-priority work. One watcher thread per device in use sleeps in the driver until the work is complete.
class Announcer {
 public:
  Announcer(const DriverTable& driver, ActivityPage& page) : driver_(driver), page_(page) {}
  ~Announcer() {
    for (auto& device : devices_) {
      {
        std::lock_guard lock(device.mutex);
        device.stopping = true;
      }
      device.changed.notify_all();
      if (device.watcher.joinable()) device.watcher.join();
    }
  }

  void BeforeDispatch(int index) {
    std::call_once(claimed_, [this] {
      const Status claimed = page_.ClaimSlot();
      if (!claimed.ok()) LOG_WARNING("high-priority work is not announced: {}", claimed.message());
      can_announce_ = claimed.ok();
    });
    if (!can_announce_) return;
    Device& device = devices_[index];
    std::lock_guard lock(device.mutex);
    ++device.num_dispatching;
    if (device.is_busy) return;
    device.is_busy = true;
    device.gate.OnHighPriorityBusy(clock_.Now());
    page_.SetBusy(static_cast<uint32_t>(index));
  }

  void AfterDispatch(int index, CUstream stream) {
    if (!can_announce_) return;
    Device& device = devices_[index];
    std::lock_guard lock(device.mutex);
    --device.num_dispatching;
    CUevent& event = device.last_work[stream];
    // Without an event completion cannot be seen: the watcher then synchronises with the whole stream's past by the
    // next one that works. Creation fails only when the context is lost, and then nothing runs any more.
    if (event == nullptr && driver_.cuEventCreate(&event, kQuietEvent) != CUDA_SUCCESS) return;
    if (driver_.cuEventRecord(event, stream) != CUDA_SUCCESS) return;
    // Recorded again before the watcher took it: it waits for the later one then.
    if (std::find(device.pending.begin(), device.pending.end(), event) != device.pending.end()) return;
    device.pending.push_back(event);
    if (!device.watcher.joinable()) StartWatcher(index);
    device.changed.notify_one();
  }

 private:
  struct Device {
    std::mutex mutex;
    std::condition_variable changed;
    bool stopping = false;                  // guarded by mutex, as all below
    bool is_busy = false;                   // what the page says
    int num_dispatching = 0;                // between Before and After
    std::map<CUstream, CUevent> last_work;  // re-recorded at each launch; streams come and go, addresses are reused
    std::vector<CUevent> pending;           // recorded since the watcher last looked
    scheduler::PriorityGate gate{{}};
    std::thread watcher;
  };

  void StartWatcher(int index) {
    CUcontext context = nullptr;
    driver_.cuCtxGetCurrent(&context);
    devices_[index].watcher = std::thread([this, index, context] {
      driver_.cuCtxSetCurrent(context);
      Watch(index);
    });
  }

  void Watch(int index) {
    Device& device = devices_[index];
    std::unique_lock lock(device.mutex);
    for (;;) {
      device.changed.wait(lock, [&] { return device.stopping || !device.pending.empty(); });
      if (device.stopping) return;
      std::vector<CUevent> pending;
      pending.swap(device.pending);
      lock.unlock();
      for (CUevent event : pending) {
        if (event != nullptr) driver_.cuEventSynchronize(event);
      }
      lock.lock();
      if (!device.pending.empty() || device.num_dispatching != 0) {
        lock.unlock();
        std::this_thread::sleep_for(kBusyPeriod);
        lock.lock();
        continue;
      }
      const TimePoint now = clock_.Now();
      device.gate.OnHighPriorityIdle(now);
      device.is_busy = false;
      page_.SetIdle(static_cast<uint32_t>(index), now + device.gate.hold_off());
    }
  }

  const DriverTable& driver_;
  ActivityPage& page_;
  const SteadyClock clock_;
  std::once_flag claimed_;
  bool can_announce_ = false;  // set once, before any Device is used
  std::array<Device, shm::kActivityDevices> devices_;
};

// Holds best-effort launches back while anybody's high-priority work runs, and bounds what is in flight.
class Restrainer final : public HighPriorityWatch {
 public:
  Restrainer(const DriverTable& driver, ActivityPage& page) : driver_(driver), page_(page) {}

  void BeforeDispatch(DispatchOf of) {
    while (IsClosed(of.device)) WaitWhileClosed(of.device, kLook);
    while (!of.can_yield && page_.HighPriorityPresent() && !open_.load(std::memory_order_relaxed)) {
      if (!DrainOne(devices_[static_cast<size_t>(of.device)])) return;
      while (IsClosed(of.device)) WaitWhileClosed(of.device, kLook);
    }
  }

  void AfterDispatch(DispatchOf of, CUstream stream) {
    if (of.can_yield || !page_.HighPriorityPresent()) return;
    Device& device = devices_[static_cast<size_t>(of.device)];
    std::lock_guard lock(device.mutex);
    CUevent event = nullptr;
    if (!device.free_events.empty()) {
      event = device.free_events.back();
      device.free_events.pop_back();
    } else if (driver_.cuEventCreate(&event, kQuietEvent) != CUDA_SUCCESS) {
      return;
    }
    if (driver_.cuEventRecord(event, stream) == CUDA_SUCCESS) {
      device.in_flight.push_back({event, clock_.Now()});
    } else {
      device.free_events.push_back(event);
    }
  }

  void Open() { open_.store(true, std::memory_order_relaxed); }

  bool IsClosed(int device) override {
    if (!page_.HighPriorityPresent() || open_.load(std::memory_order_relaxed)) return false;
    return page_.IsBusy(static_cast<uint32_t>(device)) || page_.OpensAt(static_cast<uint32_t>(device)) > clock_.Now();
  }
  void WaitWhileOpen(int device, std::chrono::nanoseconds timeout) override {
    page_.WaitWhileIdle(static_cast<uint32_t>(device), timeout);
  }
  // Bounded, so that Open() is noticed.
  void WaitWhileClosed(int device, std::chrono::nanoseconds timeout) override {
    const auto limit = std::min<std::chrono::nanoseconds>(timeout, kLook);
    if (page_.IsBusy(static_cast<uint32_t>(device))) return page_.WaitWhileBusy(static_cast<uint32_t>(device), limit);
    const auto hold_off = page_.OpensAt(static_cast<uint32_t>(device)) - clock_.Now();
    if (hold_off > hold_off.zero()) std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(hold_off, limit));
  }
  std::optional<uint32_t> QuietPhase(int device) override {
    // The number first: work that comes in between is then seen as running, or by a later number.
    const uint32_t phase = page_.NumTimesBusy(static_cast<uint32_t>(device));
    return page_.IsBusy(static_cast<uint32_t>(device)) ? std::nullopt : std::optional(phase);
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
  ActivityPage& page_;
  const SteadyClock clock_;
  std::atomic<bool> open_{false};
  std::array<Device, shm::kActivityDevices> devices_;
};

class PriorityDispatch final : public DispatchGate {
 public:
  PriorityDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page)
      : page_(std::move(page)), announcer_(driver, *page_), restrainer_(driver, *page_) {}

  void BeforeDispatch(DispatchOf of) override {
    of.is_high_priority ? announcer_.BeforeDispatch(of.device) : restrainer_.BeforeDispatch(of);
  }
  void AfterDispatch(DispatchOf of, CUstream stream) override {
    of.is_high_priority ? announcer_.AfterDispatch(of.device, stream) : restrainer_.AfterDispatch(of, stream);
  }
  void Open() override { restrainer_.Open(); }
  HighPriorityWatch* watch() override { return &restrainer_; }

 private:
  const std::unique_ptr<ActivityPage> page_;
  Announcer announcer_;
  Restrainer restrainer_;
};

}  // namespace

std::unique_ptr<DispatchGate> CreatePriorityDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page) {
  return std::make_unique<PriorityDispatch>(driver, std::move(page));
}

}  // namespace tally::server
