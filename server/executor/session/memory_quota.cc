#include "server/executor/session/memory_quota.h"

#include <algorithm>

namespace tally::server {

MemoryQuota::MemoryQuota(int num_devices, uint64_t session_bytes, uint64_t tenant_bytes,
                         std::shared_ptr<TenantPage> page)
    : session_bytes_(session_bytes),
      tenant_bytes_(tenant_bytes),
      page_(std::move(page)),
      held_bytes_(static_cast<size_t>(num_devices)) {}

uint64_t MemoryQuota::TotalOf(uint64_t device_bytes) const {
  if (session_bytes_ != 0) device_bytes = std::min(device_bytes, session_bytes_);
  if (tenant_bytes_ != 0) device_bytes = std::min(device_bytes, tenant_bytes_);
  return device_bytes;
}

uint64_t MemoryQuota::FreeOf(int device, uint64_t free_bytes) const {
  const auto left = [](uint64_t limit, uint64_t held) { return limit - std::min(held, limit); };
  if (session_bytes_ != 0) {
    free_bytes = std::min(free_bytes, left(session_bytes_, held_bytes_[static_cast<size_t>(device)].load()));
  }
  if (tenant_bytes_ != 0) free_bytes = std::min(free_bytes, left(tenant_bytes_, page_->HeldBytes(device)));
  return free_bytes;
}

bool MemoryQuota::Reserve(int device, uint64_t size_bytes) {
  std::atomic<uint64_t>& held = held_bytes_[static_cast<size_t>(device)];
  uint64_t before = held.load();
  do {
    if (session_bytes_ != 0 && (before > session_bytes_ || size_bytes > session_bytes_ - before)) return false;
  } while (!held.compare_exchange_weak(before, before + size_bytes));
  if (tenant_bytes_ == 0 || page_->Reserve(device, size_bytes, tenant_bytes_)) return true;
  held.fetch_sub(size_bytes);
  return false;
}

void MemoryQuota::Add(int device, uint64_t size_bytes) {
  held_bytes_[static_cast<size_t>(device)].fetch_add(size_bytes);
  if (page_ != nullptr) page_->Add(device, size_bytes);
}

void MemoryQuota::Return(int device, uint64_t size_bytes) {
  if (size_bytes == 0) return;
  held_bytes_[static_cast<size_t>(device)].fetch_sub(size_bytes);
  if (page_ != nullptr) page_->Return(device, size_bytes);
}

bool MemoryCharge::TryResize(uint64_t size_bytes) {
  if (size_bytes > size_bytes_ && !quota_->Reserve(device_, size_bytes - size_bytes_)) return false;
  if (size_bytes < size_bytes_) quota_->Return(device_, size_bytes_ - size_bytes);
  size_bytes_ = size_bytes;
  return true;
}

void MemoryCharge::Resize(uint64_t size_bytes) {
  if (size_bytes > size_bytes_) quota_->Add(device_, size_bytes - size_bytes_);
  if (size_bytes < size_bytes_) quota_->Return(device_, size_bytes_ - size_bytes);
  size_bytes_ = size_bytes;
}

std::optional<SharedCharge> TakeCharge(const std::shared_ptr<MemoryQuota>& quota, int device, uint64_t size_bytes) {
  if (!quota->is_limited()) return nullptr;
  auto charge = std::make_shared<MemoryCharge>(quota, device);
  if (!charge->TryResize(size_bytes)) return std::nullopt;
  return charge;
}

}  // namespace tally::server
