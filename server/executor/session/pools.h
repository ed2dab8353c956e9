// Memory pools of a session. What a program sees as a device's default pool is a pool of its own session: otherwise one
// tenant's thresholds and trims would be everybody's, and a client's end would leave its memory in the shared pool.
#pragma once

#include <cuda.h>

#include "server/executor/session/session_state.h"

namespace tally::server {

// Made on first use. With the turn. (Which pool is current is the client's to remember: it names it when it allocates.)
CUresult DefaultPool(SessionState& session, int device, CUmemoryPool* pool);
// A pool of the device's memory, the caller's.
CUresult NewDevicePool(SessionState& session, int device, CUmemoryPool* pool);

}  // namespace tally::server
