// How much of each GPU's memory a session may still take: its own limit, and that of its tenant, whose other sessions,
// here and in other executors, count too (dispatch/tenant_page.h).
//
// A charge is memory that counts, for as long as it lives. Who makes memory takes the charge first, keeps it beside
// what the driver gave, and drops it when the driver has it back. What several sessions hold (an allocation opened by
// its name) has one charge, that of who made it. Without a limit nothing is counted, and a charge is a null pointer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/executor/dispatch/tenant_page.h"

namespace tally::server {

// Of one session. Thread-safe; outlives it in its charges.
class MemoryQuota {
 public:
  // 0: no limit of that kind. `page` is null if and only if `tenant_bytes` is 0.
  MemoryQuota(int num_devices, uint64_t session_bytes, uint64_t tenant_bytes, std::shared_ptr<TenantPage> page);

  bool is_limited() const { return session_bytes_ != 0 || tenant_bytes_ != 0; }
  // What a device has to offer to the session, of `device_bytes` that there are.
  uint64_t TotalOf(uint64_t device_bytes) const;
  // What of `free_bytes` it may still take.
  uint64_t FreeOf(int device, uint64_t free_bytes) const;

 private:
  friend class MemoryCharge;
  [[nodiscard]] bool Reserve(int device, uint64_t size_bytes);
  void Add(int device, uint64_t size_bytes);
  void Return(int device, uint64_t size_bytes);

  const uint64_t session_bytes_;
  const uint64_t tenant_bytes_;
  const std::shared_ptr<TenantPage> page_;
  std::vector<std::atomic<uint64_t>> held_bytes_;  // by device
};

// Not thread-safe, but may be dropped anywhere.
class MemoryCharge {
 public:
  // Of nothing yet.
  MemoryCharge(std::shared_ptr<MemoryQuota> quota, int device) : quota_(std::move(quota)), device_(device) {}
  ~MemoryCharge() { quota_->Return(device_, size_bytes_); }
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

  uint64_t size_bytes() const { return size_bytes_; }
  // False: there is no room for it, and nothing has changed. Smaller ones always fit.
  [[nodiscard]] bool TryResize(uint64_t size_bytes);
  // What is there already.
  void Resize(uint64_t size_bytes);

 private:
  const std::shared_ptr<MemoryQuota> quota_;
  const int device_;
  uint64_t size_bytes_ = 0;
};

using SharedCharge = std::shared_ptr<MemoryCharge>;  // null: nobody counts

// For memory that is about to be made. nullopt: there is no room for it.
std::optional<SharedCharge> TakeCharge(const std::shared_ptr<MemoryQuota>& quota, int device, uint64_t size_bytes);

}  // namespace tally::server
