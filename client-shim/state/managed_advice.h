// What a program advised about its managed memory. Here the memory is where it is and advice has no effect, but it is
// answered back as given (cuMemRangeGetAttribute).
//
// A map of disjoint ranges of addresses; what was never advised about is in none. Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

namespace tally::client_shim {

struct Advice {
  static constexpr CUmemLocation kNowhere{CU_MEM_LOCATION_TYPE_INVALID, 0};

  bool is_read_mostly = false;
  CUmemLocation preferred = kNowhere;
  CUmemLocation prefetched = kNowhere;  // where to, last
  std::set<int> accessed_by;            // devices, and CU_DEVICE_CPU

  friend bool operator==(const Advice& a, const Advice& b) {
    return a.is_read_mostly == b.is_read_mostly && IsSame(a.preferred, b.preferred) &&
           IsSame(a.prefetched, b.prefetched) && a.accessed_by == b.accessed_by;
  }
  static bool IsSame(const CUmemLocation& a, const CUmemLocation& b) { return a.type == b.type && a.id == b.id; }
};

class ManagedAdvice {
 public:
  // Changes what holds for every byte of [address, address + size_bytes).
  void Change(uint64_t address, uint64_t size_bytes, const std::function<void(Advice*)>& change);
  // Calls `visit` for the advice of each part of the range, unadvised parts included, in order of address.
  void Visit(uint64_t address, uint64_t size_bytes, const std::function<void(const Advice&)>& visit) const;
  // The memory is freed.
  void Forget(uint64_t address, uint64_t size_bytes);
  // Parts that are told apart. For tests.
  size_t num_ranges() const;

 private:
  struct Range {
    uint64_t end;
    Advice advice;
  };
  using Ranges = std::map<uint64_t, Range>;
  // Makes `address` a border: no range has it inside.
  void SplitLocked(uint64_t address);
  void JoinLocked(uint64_t begin, uint64_t end);

  mutable std::mutex mutex_;
  Ranges ranges_;  // by begin, disjoint
};

}  // namespace tally::client_shim
