// The handles of one kind of one session: ids that the client holds, and the server's objects behind them.
//
// An id (proto/shm/handles_abi.h) carries kind, generation, who named it and an index: Find is two comparisons and an
// array access, and an id that was freed is never mistaken for its successor until 256 reuses later. Guarded by the
// session's sequencer; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "proto/shm/handles_abi.h"

namespace tally::server {

class HandleTable {
 public:
  struct Entry {
    uint64_t handle = 0;  // 0: free
    void* value = nullptr;
    uint32_t context = 0;  // of the client, when it was made
  };

  // With `by_value`, FindHandle works, at the price of a hash map entry per handle.
  HandleTable(shm::HandleKind kind, uint32_t max_handles, bool by_value);

  // Names `value`; the same value again is the same name if the table is by value. 0: the table is full.
  uint64_t Add(void* value, uint32_t context);
  // Takes a name that the client chose. False: not a free client-side name of this kind.
  bool AddNamed(uint64_t handle, void* value, uint32_t context);
  // Null: no such handle.
  void* Find(uint64_t handle) const {
    const Entry* entry = FindEntry(handle);
    return entry != nullptr ? entry->value : nullptr;
  }
  const Entry* FindEntry(uint64_t handle) const;
  // 0: unknown, or the table is not by value.
  uint64_t FindHandle(void* value) const;
  // Returns the value, null if there was none.
  void* Remove(uint64_t handle);
  size_t size() const { return size_; }

  // Entries at the time of the call, so that the caller may remove while going through them.
  std::vector<Entry> Entries() const;

 private:
  struct Side {
    std::vector<Entry> entries;
    std::vector<uint8_t> generations;  // of the next use
    std::vector<uint32_t> free;        // server side only
  };

  shm::HandleKind kind_;
  uint32_t max_handles_;
  bool by_value_;
  size_t size_ = 0;
  Side sides_[2];  // named by the client, by the server
  std::unordered_map<void*, uint64_t> handles_;
};

}  // namespace tally::server
