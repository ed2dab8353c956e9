#include "client-shim/state/address_reservations.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/mapped_region.h"

namespace tally::client_shim {
namespace {

// Two allocations of 32 MiB.
constexpr size_t kMostIdle = 32;

}  // namespace

bool AddressReservations::Hold(uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0) return true;
  const uint64_t first = address / kGranuleBytes;
  const uint64_t last = (address + size_bytes - 1) / kGranuleBytes + 1;
  const std::lock_guard lock(mutex_);
  uint64_t granule = first;
  while (granule < last) {
    if (const auto held = holders_.find(granule); held != holders_.end()) {
      ++held->second;
      ++granule;
      continue;
    }
    uint64_t end = granule + 1;  // one mapping for a run of new granules
    while (end < last && !holders_.contains(end)) ++end;
    auto region =
        MappedRegion::ReserveAt(reinterpret_cast<void*>(granule * kGranuleBytes), (end - granule) * kGranuleBytes);
    if (!region) {
      ReleaseLocked(first, granule);
      return false;
    }
    region->Leak();
    for (; granule < end; ++granule) holders_[granule] = 1;
  }
  return true;
}

bool AddressReservations::HoldWhole(uint64_t address, uint64_t size_bytes) {
  if (address % kGranuleBytes != 0 || size_bytes % kGranuleBytes != 0) return Hold(address, size_bytes);
  {
    const std::lock_guard lock(mutex_);
    ReleaseIdleLocked();
  }
  auto region = MappedRegion::ReserveAt(reinterpret_cast<void*>(address), size_bytes);
  if (region) region->Leak();
  return region.has_value();
}

void AddressReservations::ReleaseWhole(uint64_t address, uint64_t size_bytes) {
  if (address % kGranuleBytes != 0 || size_bytes % kGranuleBytes != 0) return Release(address, size_bytes);
  ::munmap(reinterpret_cast<void*>(address), size_bytes);
}

void AddressReservations::Release(uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0) return;
  const std::lock_guard lock(mutex_);
  ReleaseLocked(address / kGranuleBytes, (address + size_bytes - 1) / kGranuleBytes + 1);
}

void AddressReservations::ReleaseSoon(uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0) return;
  const uint64_t first = address / kGranuleBytes;
  const uint64_t last = (address + size_bytes - 1) / kGranuleBytes + 1;
  const std::lock_guard lock(mutex_);
  if (last - first > kMostIdle) return ReleaseLocked(first, last);
  for (uint64_t granule = first; granule < last; ++granule) {
    const auto held = holders_.find(granule);
    if (held == holders_.end() || --held->second != 0) continue;
    if (std::find(idle_.begin(), idle_.end(), granule) == idle_.end()) idle_.push_back(granule);
  }
  if (idle_.size() > kMostIdle) ReleaseIdleLocked();
}

void AddressReservations::ReleaseIdleLocked() {
  std::erase_if(idle_, [&](uint64_t granule) {
    const auto held = holders_.find(granule);
    if (held == holders_.end() || held->second != 0) return true;
    ++held->second;  // the one that is given back below
    return false;
  });
  std::sort(idle_.begin(), idle_.end());
  for (size_t i = 0; i < idle_.size();) {
    const size_t first = i;
    while (++i < idle_.size() && idle_[i] == idle_[i - 1] + 1) {
    }
    ReleaseLocked(idle_[first], idle_[i - 1] + 1);
  }
  idle_.clear();
}

void AddressReservations::ReleaseLocked(uint64_t first, uint64_t last) {
  uint64_t run = first;  // from here on nobody holds what was looked at: unmapped in one go
  const auto unmap_until = [&](uint64_t end) {
    if (end != run) ::munmap(reinterpret_cast<void*>(run * kGranuleBytes), (end - run) * kGranuleBytes);
    run = end + 1;
  };
  for (uint64_t granule = first; granule < last; ++granule) {
    const auto held = holders_.find(granule);
    if (held == holders_.end() || --held->second != 0) {
      unmap_until(granule);
    } else {
      holders_.erase(held);
    }
  }
  unmap_until(last);
}

}  // namespace tally::client_shim
