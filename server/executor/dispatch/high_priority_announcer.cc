#include "server/executor/dispatch/high_priority_announcer.h"

#include <sys/prctl.h>

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
constexpr auto kLookPeriod = std::chrono::microseconds(50);
constexpr auto kLongLookPeriod = std::chrono::microseconds(200);
constexpr int kLooksUntilLong = 200;

}  // namespace

HighPriorityAnnouncer::HighPriorityAnnouncer(const DriverTable& driver, Devices& devices, ActivityPage& page,
                                             const Clock& clock, bool may_hold)
    : driver_(driver), all_devices_(devices), page_(page), clock_(clock), may_hold_(may_hold) {}

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

void HighPriorityAnnouncer::BeforeDispatch(int index, const Launching& launching) {
  std::call_once(claimed_, [this] {
    const Status claimed = page_.ClaimSlot();
    if (!claimed.ok()) LOG_WARNING("high-priority work is not announced: {}", claimed.message());
    can_announce_ = claimed.ok();
  });
  if (!can_announce_) return;
  Device& device = devices_[static_cast<size_t>(index)];
  std::lock_guard lock(device.mutex);
  ++device.num_dispatching;
  device.wants_hold.store(launching.wants_hold, std::memory_order_relaxed);
  if (device.is_busy) {
    // The watcher has not seen the last request end, or there would be a gap.
    if (launching.begins_request && device.gap_hold != nullptr) {
      device.gap_hold->OnUnseenGap(clock_.Now(), IsHoldingAllowed(index), launching.wants_hold, launching.figures);
      NoteWouldHold(index);
    }
    return;
  }
  // Nobody would see the end of what is announced.
  if (!device.watcher.joinable() && !StartWatcher(index)) return;
  device.is_busy = true;
  const TimePoint now = clock_.Now();
  device.hold_off_rule.OnHighPriorityBusy(now);
  if (device.gap_hold != nullptr) device.gap_hold->OnBusy(now, launching.figures);
  page_.SetBusy(static_cast<uint32_t>(index));
}

void HighPriorityAnnouncer::AfterDispatch(int index, CUstream stream) {
  if (!can_announce_) return;
  Device& device = devices_[static_cast<size_t>(index)];
  std::lock_guard lock(device.mutex);
  --device.num_dispatching;
  device.num_dispatched.store(device.num_dispatched.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!device.is_busy) return;
  CompletionSource& completions = all_devices_.completions(index);
  // Without a mark completion cannot be seen: the next one that works stands for the stream's whole past. Putting one
  // fails only when the context is lost, and then nothing runs any more.
  const auto of_stream = [stream](const Mark& mark) { return mark.stream() == stream; };
  const auto known = std::find_if(device.last_work.begin(), device.last_work.end(), of_stream);
  if (known != device.last_work.end()) {
    completions.Put(stream, &*known);
    return;
  }
  // After a failure it is the mark of nothing, which has ended: the watcher is to look all the same, or the device
  // would be busy for ever.
  Mark mark;
  completions.Put(stream, &mark);
  device.last_work.push_back(std::move(mark));
  device.changed.notify_one();
}

void HighPriorityAnnouncer::SetHoldOffBounds(std::chrono::nanoseconds least, std::chrono::nanoseconds most) {
  for (Device& device : devices_) {
    const std::lock_guard lock(device.mutex);
    device.hold_off_rule.SetHoldOffBounds(least, most);
  }
}

bool HighPriorityAnnouncer::StartWatcher(int index) {
  CUcontext context = nullptr;
  driver_.cuCtxGetCurrent(&context);
  Device& device = devices_[static_cast<size_t>(index)];
  if (may_hold_ && device.gap_hold == nullptr) {
    device.gap_hold = std::make_unique<GapHold>(driver_);
    if (!device.gap_hold->Open()) refused_devices_.fetch_or(uint64_t{1} << index, std::memory_order_relaxed);
  }
  auto thread = StartThread("busy-watch", [this, index, context] {
    driver_.cuCtxSetCurrent(context);
    Watch(index);
  });
  if (!thread) {
    LOG_WARNING("high-priority work is not announced for now: {}", thread.error().message());
    return false;
  }
  device.watcher = std::move(*thread);
  return true;
}

void HighPriorityAnnouncer::NoteWouldHold(int index) {
  const uint64_t bit = uint64_t{1} << index;
  if (devices_[static_cast<size_t>(index)].gap_hold->would_hold()) {
    wanting_devices_.fetch_or(bit, std::memory_order_relaxed);
  } else {
    wanting_devices_.fetch_and(~bit, std::memory_order_relaxed);
  }
}

void HighPriorityAnnouncer::AwaitMark(const Mark& mark, int index) {
  Device& device = devices_[static_cast<size_t>(index)];
  uint32_t num_seen = device.num_dispatched.load(std::memory_order_relaxed) - 1;
  for (int looks = 0; !mark.HasEnded(); ++looks) {
    const bool is_held = device.gap_hold != nullptr && MayHold(index);
    if (device.gap_hold != nullptr) {
      const uint32_t num = device.num_dispatched.load(std::memory_order_relaxed);
      device.gap_hold->WhileBusy(clock_.Now(), num != num_seen, is_held);
      num_seen = num;
    }
    std::this_thread::sleep_for(looks < kLooksUntilLong || is_held ? kLookPeriod : kLongLookPeriod);
  }
}

void HighPriorityAnnouncer::HoldUntil(TimePoint until, Device& device, std::unique_lock<std::mutex>& lock) {
  const auto is_over = [&] { return device.stopping || !device.last_work.empty(); };
  while (!is_over() && clock_.Now() < until) {
    lock.unlock();
    device.gap_hold->WhileIdle();
    lock.lock();
    device.changed.wait_for(lock, std::min<std::chrono::nanoseconds>(kLookPeriod, until - clock_.Now()), is_over);
  }
  if (!is_over()) device.gap_hold->End();
}

void HighPriorityAnnouncer::Watch(int index) {
  Device& device = devices_[static_cast<size_t>(index)];
  std::vector<Mark> pending;
  // What is held is renewed in time, and not for longer than it should be.
  if (device.gap_hold != nullptr) ::prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
  std::unique_lock lock(device.mutex);
  for (;;) {
    device.changed.wait(lock, [&] { return device.stopping || !device.last_work.empty(); });
    if (device.stopping) {
      device.gap_hold.reset();  // here its context is current
      return;
    }
    pending.swap(device.last_work);
    lock.unlock();
    for (const Mark& mark : pending) AwaitMark(mark, index);
    pending.clear();
    lock.lock();
    if (!device.last_work.empty() || device.num_dispatching != 0) {
      lock.unlock();
      std::this_thread::sleep_for(kLookPeriod);
      lock.lock();
      continue;
    }
    const TimePoint now = clock_.Now();
    device.hold_off_rule.OnHighPriorityIdle(now);
    device.is_busy = false;
    page_.SetIdle(static_cast<uint32_t>(index), now + device.hold_off_rule.hold_off());
    if (device.gap_hold == nullptr) continue;
    NoteWouldHold(index);
    const bool is_wanted = device.wants_hold.load(std::memory_order_relaxed);
    HoldUntil(device.gap_hold->OnIdle(now, IsHoldingAllowed(index), is_wanted), device, lock);
  }
}

}  // namespace tally::server
