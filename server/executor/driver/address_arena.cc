#include "server/executor/driver/address_arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tally::server {

AddressArena::~AddressArena() {
  if (range_.num_bytes != 0) driver_.cuMemAddressFree(range_.begin, range_.num_bytes);
}

bool AddressArena::Reserve() {
  if (!std::exchange(was_asked_, true)) {
    std::ranges::any_of(wishes_, [this](const Range& wish) { return Reserve(wish); });
  }
  return range_.num_bytes != 0;
}

bool AddressArena::Reserve(const Range& wish) {
  if (driver_.cuMemAddressReserve == nullptr || driver_.cuMemAddressFree == nullptr) return false;
  CUdeviceptr got = 0;
  if (driver_.cuMemAddressReserve(&got, wish.num_bytes, 0, wish.begin, 0) != CUDA_SUCCESS) return false;
  if (got != wish.begin) {
    driver_.cuMemAddressFree(got, wish.num_bytes);
    return false;
  }
  free_.emplace(wish.begin, wish.num_bytes);
  range_ = wish;
  return true;
}

std::optional<CUdeviceptr> AddressArena::Take(uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (!Reserve()) return std::nullopt;
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& gap) { return gap.second >= num_bytes; });
  if (found == free_.end()) return std::nullopt;
  const auto [begin, size] = *found;
  free_.erase(found);
  if (size != num_bytes) free_.emplace(begin + num_bytes, size - num_bytes);
  return begin;
}

bool AddressArena::Give(CUdeviceptr address, uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (!range_.Contains(address, num_bytes)) return false;
  auto after = free_.lower_bound(address);
  if (after != free_.end() && address + num_bytes == after->first) {
    num_bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == address) {
      before->second += num_bytes;
      return true;
    }
  }
  free_.emplace(address, num_bytes);
  return true;
}

bool AddressArena::Holds(CUdeviceptr address, uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  return Reserve() && range_.Contains(address, num_bytes);
}

}  // namespace tally::server
