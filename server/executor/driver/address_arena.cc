#include "server/executor/driver/address_arena.h"

#include <algorithm>
#include <iterator>

namespace tally::server {

AddressArena::~AddressArena() {
  if (state_ == State::kReserved) driver_.cuMemAddressFree(kBegin, kNumBytes);
}

bool AddressArena::Reserve() {
  if (state_ != State::kNotAsked) return state_ == State::kReserved;
  state_ = State::kRefused;
  if (driver_.cuMemAddressReserve == nullptr || driver_.cuMemAddressFree == nullptr) return false;
  CUdeviceptr got = 0;
  if (driver_.cuMemAddressReserve(&got, kNumBytes, 0, kBegin, 0) != CUDA_SUCCESS) return false;
  if (got != kBegin) {
    driver_.cuMemAddressFree(got, kNumBytes);
    return false;
  }
  free_.emplace(kBegin, kNumBytes);
  state_ = State::kReserved;
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
  if (state_ != State::kReserved || address < kBegin || address - kBegin >= kNumBytes) return false;
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
  if (address < kBegin || address - kBegin > kNumBytes || num_bytes > kNumBytes - (address - kBegin)) return false;
  const std::lock_guard lock(mutex_);
  return Reserve();
}

}  // namespace tally::server
