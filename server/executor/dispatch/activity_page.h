// The activity page as one executor sees it: a high-priority executor publishes, a best-effort executor waits.
//
// Thread-safe except where a method says otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mapped_region.h"
#include "base/status.h"
#include "proto/shm/activity_abi.h"

namespace tally::server {

class ActivityPage {
 public:
  // Maps the page at `path`, creating it (mode 0600) if it is not there.
  static Result<std::unique_ptr<ActivityPage>> Open(const std::string& path);
  // Gives the slot back, if one was claimed, and what it had marked busy.
  ~ActivityPage();

  // High-priority side. Claim once, before the others; kResourceExhausted when all slots are taken by living processes.
  Status ClaimSlot();
  // This executor has ever had work on `device`.
  bool HasWorkedOn(uint32_t device) const;
  // This executor has work on `device`. Cheap when it is marked already.
  void SetBusy(uint32_t device);
  // Its work on `device` is done; best-effort work may start at `opens_at`.
  void SetIdle(uint32_t device, TimePoint opens_at);

  // Best-effort side.
  // Some living high-priority executor has ever had work on `device`.
  bool HighPriorityPresent(uint32_t device) const;
  bool IsBusy(uint32_t device) const;
  // When `device` last became busy.
  TimePoint BusySince(uint32_t device) const;
  // Until when best-effort work stays back though nothing runs; in the past when it may run.
  TimePoint OpensAt(uint32_t device) const;
  // Sleeps until `device` is no longer busy or `timeout` passed. Forgets executors that have died.
  void WaitWhileBusy(uint32_t device, std::chrono::nanoseconds timeout);
  // Sleeps until `device` is busy or `timeout` passed.
  void WaitWhileIdle(uint32_t device, std::chrono::nanoseconds timeout);
  // How often `device` has become busy: two equal answers with an idle one between them mean that nothing disturbed.
  uint32_t NumTimesBusy(uint32_t device) const;

 private:
  explicit ActivityPage(MappedRegion region) : region_(std::move(region)) {}
  shm::ActivityPage& page() const { return *reinterpret_cast<shm::ActivityPage*>(region_.data()); }
  void ReleaseSlot(shm::ActivitySlot& slot);
  void ForgetDeadOwners();
  void LeaveBusy(uint32_t device);

  MappedRegion region_;
  std::atomic<shm::ActivitySlot*> slot_{nullptr};  // ours, on the high-priority side
};

}  // namespace tally::server
