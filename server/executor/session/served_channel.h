// What a channel has for its requests. Operations take the parts that they name in their signatures (operations.h).
//
// Lives as long as its channel. On the channel's thread only.
#pragma once

#include <cstdint>

#include "server/executor/channel/channel_region.h"
#include "server/executor/session/arena_chunks.h"
#include "server/executor/session/client_names.h"
#include "server/executor/session/served_request.h"
#include "server/executor/session/stream_waits.h"

namespace tally::server {

struct ServedChannel {
  ServedChannel(SessionState& session, Sequencer& sequencer, uint32_t channel_index, const ChannelRegion& region)
      : request(session, sequencer), names(request, channel_index), waits(request), chunks(request, waits, region) {}

  ServedRequest request;
  ClientNames names;
  StreamWaits waits;
  ArenaChunks chunks;
};

}  // namespace tally::server
