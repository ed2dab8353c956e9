// Events and allocations of one session as other sessions see them: which of them are another's, opened here, and who
// destroys one in the end.
//
// Guarded by the session's sequencer. What it is made of must outlive it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <set>

#include "server/executor/session/awaited_objects.h"
#include "server/executor/session/shared_objects.h"

namespace tally::server {

class OpenedObjects {
 public:
  OpenedObjects(SharedObjects& shared, AwaitedObjects& awaited) : shared_(shared), awaited_(awaited) {}

  std::map<uint64_t, uint32_t> num_opens;  // of memory of other sessions, by address
  std::set<uint64_t> events;               // handles of events of other sessions

  // An event of the session, by its handle, is no longer used here. True: nobody uses it, the caller destroys it.
  [[nodiscard]] bool LetGoOfEvent(uint64_t handle, CUevent event) {
    const bool is_owner = events.erase(handle) == 0;
    return shared_.Drop(shm::SharedKind::kEvent, reinterpret_cast<uint64_t>(event), is_owner) &&
           !awaited_.PutOffDestruction(event);
  }
  // Likewise memory, by its address.
  [[nodiscard]] bool LetGoOfMemory(uint64_t address, bool is_owner) {
    num_opens.erase(address);
    return shared_.Drop(shm::SharedKind::kAllocation, address, is_owner);
  }

 private:
  SharedObjects& shared_;
  AwaitedObjects& awaited_;
};

}  // namespace tally::server
