// A channel's arena, through which pageable memory is copied: pinned for the driver on first use, and used again chunk
// by chunk once the copies that used it are done.
//
// Lives as long as its channel; on the channel's thread, the end apart.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "server/executor/channel/channel_region.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/session/stream_waits.h"

namespace tally::server {

class ArenaChunks {
 public:
  ArenaChunks(ServedRequest& served, const StreamWaits& waits, const ChannelRegion& region)
      : served_(served), waits_(waits), region_(region) {}
  // Nothing uses the arena any more.
  ~ArenaChunks();
  ArenaChunks(const ArenaChunks&) = delete;
  ArenaChunks& operator=(const ArenaChunks&) = delete;

  // The arena, registered with the driver on first use. Null: it could not be, *result says why.
  std::byte* Arena(CUresult* result);
  // The last copy that uses the chunk was just put on this stream.
  CUresult MarkChunks(uint64_t offset_bytes, uint64_t size_bytes, const Stream& stream);
  // Releases the sequencer.
  CUresult AwaitChunk(uint32_t chunk);

 private:
  const DriverTable& driver() const { return served_.driver(); }

  ServedRequest& served_;
  const StreamWaits& waits_;
  const ChannelRegion& region_;
  static constexpr int kNoDevice = ServedRequest::kNoDevice;
  int arena_device_ = kNoDevice;                // on which the arena was registered
  std::array<Mark, shm::kArenaChunks> chunks_;  // behind the copy that used it last
};

}  // namespace tally::server
