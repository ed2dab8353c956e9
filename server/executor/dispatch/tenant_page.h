// What a tenant holds of each GPU, and has used of its time, all its executors together (proto/shm/tenant_page_abi.h).
//
// Thread-safe. One of each tenant and executor, shared by the sessions of the tenant and by what they have allocated.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/mapped_region.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/shm/tenant_page_abi.h"

namespace tally::server {

class TenantPage {
 public:
  // Maps the page at `path`, creating it (mode 0600) if it is not there; "": one of this process alone.
  // kResourceExhausted: more executors of one tenant than a page has slots.
  static Result<std::unique_ptr<TenantPage>> Open(const std::string& path);
  // What its slot still says is held no more.
  ~TenantPage();

  // Counts what is about to be allocated, if the tenant then holds no more than `limit_bytes` of the device.
  [[nodiscard]] bool Reserve(int device, uint64_t size_bytes, uint64_t limit_bytes);
  // Counts what is there already, whatever the limit is.
  void Add(int device, uint64_t size_bytes);
  void Return(int device, uint64_t size_bytes);
  uint64_t HeldBytes(int device) const;

  // scheduler/share_cap.h.
  std::atomic<int64_t>& used_until_ns(int device) const { return page().used_until_ns[device]; }

 private:
  TenantPage(UniqueFd fd, MappedRegion region) : fd_(std::move(fd)), region_(std::move(region)) {}
  shm::TenantPage& page() const { return *reinterpret_cast<shm::TenantPage*>(region_.data()); }
  // kAborted: tallyd has removed the file since it was opened.
  static Result<std::unique_ptr<TenantPage>> OpenOnce(const std::string& path);
  // With the file's lock, as the two below.
  Status Join(const std::string& path);
  Status ClaimSlot();
  void ForgetDeadOwners();
  bool Fits(int device, uint64_t size_bytes, uint64_t limit_bytes) const;

  const UniqueFd fd_;
  MappedRegion region_;
  shm::TenantSlot* slot_ = nullptr;  // ours
  std::mutex mutex_;                 // the file's lock is one of the process
};

// The pages of an executor, each open while somebody has it. Thread-safe.
class TenantPages {
 public:
  // Where the files are; "": nowhere, every page is this process's own.
  explicit TenantPages(std::string directory) : directory_(std::move(directory)) {}
  // `name`: TenantPageName of the tenant.
  Result<std::shared_ptr<TenantPage>> Open(const std::string& name);

 private:
  const std::string directory_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<TenantPage>> pages_;  // guarded by mutex_
};

}  // namespace tally::server
