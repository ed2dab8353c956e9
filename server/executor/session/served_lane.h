// What a lane has for its requests. Operations take the parts that they name in their signatures (operations.h).
//
// Lives as long as its lane. On the lane's thread only.
#pragma once

#include <cstdint>

#include "server/executor/channel/lane_region.h"
#include "server/executor/session/arena_chunks.h"
#include "server/executor/session/client_names.h"
#include "server/executor/session/served_request.h"
#include "server/executor/session/stream_waits.h"

namespace tally::server {

struct ServedLane {
  ServedLane(SessionState& session, TurnOrder& turns, uint32_t lane_index, const LaneRegion& region)
      : request(session, turns), names(request, lane_index), waits(request), chunks(request, waits, region) {}

  ServedRequest request;
  ClientNames names;
  StreamWaits waits;
  ArenaChunks chunks;
};

}  // namespace tally::server
