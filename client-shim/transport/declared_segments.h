// What a thread has declared of its next launch (include/tally/segments.h). One per thread that declares anything;
// used by it alone.
#pragma once

#include <cstdint>

#include "client-shim/transport/thread_state.h"
#include "proto/shm/records_launch_abi.h"

namespace tally::client_shim {

struct DeclaredSegments {
  bool is_pending;  // the next launch has it
  bool is_opaque;
  uint16_t num_reads;
  uint16_t num_writes;
  shm::DeclaredBox boxes[shm::kMaxDeclaredBoxes];  // those that are read first

  // Returns how many bytes of `boxes` are to follow the launch's parameters.
  uint32_t Announce(shm::Launch* launch) const {
    launch->flags = static_cast<uint16_t>(launch->flags | (is_opaque ? shm::kLaunchOpaque : shm::kLaunchDeclared));
    launch->num_declared_reads = num_reads;
    launch->num_declared_writes = num_writes;
    return (uint32_t{num_reads} + num_writes) * static_cast<uint32_t>(sizeof(shm::DeclaredBox));
  }
};

// For the launch that the calling thread begins, whatever becomes of it; null, nearly always: nothing was declared.
// Valid until the thread declares something else.
inline const DeclaredSegments* TakeDeclared() {
  DeclaredSegments* const declared = t_thread.declared;
  if (declared == nullptr || !declared->is_pending) [[likely]]
    return nullptr;
  declared->is_pending = false;
  return declared;
}

}  // namespace tally::client_shim
