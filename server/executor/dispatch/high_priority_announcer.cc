#include "server/executor/dispatch/high_priority_announcer.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/thread.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {
namespace {

// How often the watcher looks whether busy high-priority streams have come to an end, at first and when they have been
// busy for long. It sleeps in between, not in the driver: an interrupt at every kernel's end would slow down what it
// watches, and one that was missed would keep everybody else waiting for ever.
constexpr auto kBusyPeriod = std::chrono::microseconds(50);
constexpr auto kLongBusyPeriod = std::chrono::microseconds(200);
constexpr int kLooksUntilLong = 200;

}  // namespace

HighPriorityAnnouncer::HighPriorityAnnouncer(const DriverTable& driver, ActivityPage& page, const Clock& clock)
    : driver_(driver), page_(page), clock_(clock) {}

HighPriorityAnnouncer::~HighPriorityAnnouncer() {
  for (auto& device : devices_) {
    {
      std::lock_guard lock(device.mutex);
      device.stopping = true;
    }
    device.changed.notify_all();
    if (device.watcher.joinable()) device.watcher.join();
  }
}

void HighPriorityAnnouncer::BeforeDispatch(int index) {
  std::call_once(claimed_, [this] {
    const Status claimed = page_.ClaimSlot();
    if (!claimed.ok()) LOG_WARNING("high-priority work is not announced: {}", claimed.message());
    can_announce_ = claimed.ok();
  });
  if (!can_announce_) return;
  Device& device = devices_[static_cast<size_t>(index)];
  std::lock_guard lock(device.mutex);
  ++device.num_dispatching;
  if (device.is_busy) return;
  // Nobody would see the end of what is announced.
  if (!device.watcher.joinable() && !StartWatcher(index)) return;
  device.is_busy = true;
  device.gate.OnHighPriorityBusy(clock_.Now());
  page_.SetBusy(static_cast<uint32_t>(index));
}

void HighPriorityAnnouncer::AfterDispatch(int index, CUstream stream) {
  if (!can_announce_) return;
  Device& device = devices_[static_cast<size_t>(index)];
  std::lock_guard lock(device.mutex);
  --device.num_dispatching;
  if (!device.is_busy) return;
  CUevent& event = device.last_work[stream];
  // Without an event completion cannot be seen: the watcher then synchronises with the whole stream's past by the
  // next one that works. Creation fails only when the context is lost, and then nothing runs any more.
  if (event == nullptr && driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
  if (driver_.cuEventRecord(event, stream) != CUDA_SUCCESS) return;
  // Recorded again before the watcher took it: it waits for the later one then.
  if (std::find(device.pending.begin(), device.pending.end(), event) != device.pending.end()) return;
  device.pending.push_back(event);
  device.changed.notify_one();
}

void HighPriorityAnnouncer::SetHoldOffBounds(std::chrono::nanoseconds least, std::chrono::nanoseconds most) {
  for (Device& device : devices_) {
    const std::lock_guard lock(device.mutex);
    device.gate.SetHoldOffBounds(least, most);
  }
}

bool HighPriorityAnnouncer::StartWatcher(int index) {
  CUcontext context = nullptr;
  driver_.cuCtxGetCurrent(&context);
  auto thread = StartThread("busy-watch", [this, index, context] {
    driver_.cuCtxSetCurrent(context);
    Watch(index);
  });
  if (!thread) {
    LOG_WARNING("high-priority work is not announced for now: {}", thread.error().message());
    return false;
  }
  devices_[static_cast<size_t>(index)].watcher = std::move(*thread);
  return true;
}

void HighPriorityAnnouncer::Watch(int index) {
  Device& device = devices_[static_cast<size_t>(index)];
  std::unique_lock lock(device.mutex);
  for (;;) {
    device.changed.wait(lock, [&] { return device.stopping || !device.pending.empty(); });
    if (device.stopping) return;
    std::vector<CUevent> pending;
    pending.swap(device.pending);
    lock.unlock();
    for (CUevent event : pending) {
      for (int looks = 0; driver_.cuEventQuery(event) == CUDA_ERROR_NOT_READY; ++looks) {
        std::this_thread::sleep_for(looks < kLooksUntilLong ? kBusyPeriod : kLongBusyPeriod);
      }
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

}  // namespace tally::server
