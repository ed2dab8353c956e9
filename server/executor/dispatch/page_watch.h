// What best-effort work sees of high-priority work: the activity page, until the executor ends.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>

#include "base/clock.h"
#include "server/executor/dispatch/activity_page.h"
#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {

class PageWatch final : public HighPriorityWatch {
 public:
  // The longest that a waiting thread sleeps without looking whether the executor ends.
  static constexpr auto kLook = std::chrono::milliseconds(10);

  // `minds_hold_off`: it stays closed for the hold-off after high-priority work, too. `page` and `clock` outlive this.
  PageWatch(ActivityPage& page, bool minds_hold_off, const Clock& clock)
      : page_(page), minds_hold_off_(minds_hold_off), clock_(clock) {}

  // Nothing is closed from now on: the executor is shutting down.
  void Open() { is_open_.store(true, std::memory_order_relaxed); }
  bool is_open() const { return is_open_.load(std::memory_order_relaxed); }
  // Some high-priority executor exists that has worked there, whether it does so now or not.
  bool IsHighPriorityPresent(int device) override { return page_.HighPriorityPresent(static_cast<uint32_t>(device)); }

  bool IsOneOfThem(int device) override { return page_.HasWorkedOn(static_cast<uint32_t>(device)); }

  bool IsClosed(int device) override;
  TimePoint ClosedSince(int device) override { return page_.BusySince(static_cast<uint32_t>(device)); }
  TimePoint OpenSince(int device) override { return page_.OpensAt(static_cast<uint32_t>(device)); }
  void WaitWhileOpen(int device, std::chrono::nanoseconds timeout) override;
  void WaitWhileClosed(int device, std::chrono::nanoseconds timeout) override;
  std::optional<uint32_t> QuietPhase(int device) override;
  void OnStandstill(int device) override { num_standstills_[static_cast<size_t>(device)].fetch_add(1); }
  uint64_t NumStandstills(int device) override { return num_standstills_[static_cast<size_t>(device)].load(); }

 private:
  ActivityPage& page_;
  const bool minds_hold_off_;
  const Clock& clock_;
  std::atomic<bool> is_open_{false};
  std::array<std::atomic<uint64_t>, shm::kActivityDevices> num_standstills_{};
};

}  // namespace tally::server
