// All handles of one session: a table for each kind.
//
// Guarded by the session's sequencer; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/executor/session/handle_table.h"

namespace tally::server {

class HandleTables {
 public:
  explicit HandleTables(uint32_t handles_per_kind);

  HandleTable& operator[](shm::HandleKind kind) { return tables_[static_cast<size_t>(kind)]; }

  // Removes those that were made in one client context, or in all (kNoContext). Each is destroyed first, unless it has
  // gone with another one by then.
  template <typename Destroy>
  void RemoveEach(shm::HandleKind kind, uint32_t context, const Destroy& destroy) {
    HandleTable& table = (*this)[kind];
    for (const HandleTable::Entry& entry : table.Entries()) {
      if (context != shm::kNoContext && entry.context != context) continue;
      if (table.Find(entry.handle) == nullptr) continue;
      destroy(entry);
      table.Remove(entry.handle);
    }
  }

 private:
  std::vector<HandleTable> tables_;
};

}  // namespace tally::server
