// Names for handles that the client mints itself (events), so that creating one needs no answer. An index is used again
// with the next generation, so that a stale handle is recognised. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "proto/shm/handles_abi.h"

namespace tally::client_shim {

class HandleNames {
 public:
  explicit HandleNames(shm::HandleKind kind) : kind_(kind) {}

  // 0 when all 2^27 are in use.
  uint64_t Take() {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const Name name = free_.back();
      free_.pop_back();
      return shm::MakeHandle(kind_, name.generation, false, name.index);
    }
    if (next_ > shm::kMaxHandleIndex) return 0;
    return shm::MakeHandle(kind_, 0, false, next_++);
  }
  // Only after the request that destroys the thing has been sent.
  void Return(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    free_.push_back({shm::HandleIndexOf(handle), static_cast<uint8_t>((handle >> 32 & 0xff) + 1)});
  }

 private:
  struct Name {
    uint64_t index;
    uint8_t generation;
  };
  shm::HandleKind kind_;
  std::mutex mutex_;
  uint64_t next_ = 1;  // so that no handle looks like a null one with a kind
  std::vector<Name> free_;
};

}  // namespace tally::client_shim
