// Barriers in shared memory that count arrivals and bytes (PTX ISA 9.7.13.15), and waits for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// The 64 bits of an mbarrier object, which PTX leaves open. Only threads of one cluster use one, so plain accesses do.
struct MBarrier {
  static constexpr uint64_t kCountMask = (1u << 20) - 1;
  static constexpr uint64_t kTransactionMask = (1u << 23) - 1;

  uint32_t phase;        // bit 63
  uint32_t pending;      // bits 43-62
  uint32_t expected;     // bits 23-42
  int32_t transactions;  // bits 0-22, signed

  static MBarrier Unpack(uint64_t bits) {
    return {static_cast<uint32_t>(bits >> 63), static_cast<uint32_t>(bits >> 43 & kCountMask),
            static_cast<uint32_t>(bits >> 23 & kCountMask),
            static_cast<int32_t>(static_cast<uint32_t>(bits & kTransactionMask) << 9) >> 9};
  }
  uint64_t Pack() const {
    return uint64_t{phase} << 63 | (pending & kCountMask) << 43 | (expected & kCountMask) << 23 |
           (static_cast<uint32_t>(transactions) & kTransactionMask);
  }
  void CompleteIfDone() {
    if (pending != 0 || transactions != 0) return;
    phase ^= 1;
    pending = expected;
  }
};

// A copy brought `bytes`, for which the barrier at `at` (in the host's memory) may wait.
void CompleteTransactions(std::byte* at, uint32_t bytes);

// Is it a test_wait or try_wait?
bool IsMBarrierWait(const Instruction& i);
// Of a split right behind its wait for an mbarrier of its block: " (8 bytes more than it expects were brought)", and
// what else is not as it should be. Empty for other splits.
std::string DescribeMBarrier(const Warp& w, const Split& split);

}  // namespace tally::sim_driver
