// What a session may still allocate.
#pragma once

#include <cstdint>

#include "server/executor/session/session_state.h"

namespace tally::server {

// Whether `size_bytes` more of device memory stay within the session's limit.
inline bool FitsQuota(const SessionState& session, uint64_t size_bytes) {
  const uint64_t limit = session.core.limits.device_memory_bytes;
  if (limit == 0) return true;
  const uint64_t used = session.memory.device_bytes();
  return used <= limit && size_bytes <= limit - used;
}

}  // namespace tally::server
