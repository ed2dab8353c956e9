#include "server/executor/channel/lane_region.h"

#include <fmt/format.h>

#include <new>

#include "proto/shm/handshake_abi.h"

namespace tally::server {

Result<LaneRegion> LaneRegion::Create(uint32_t lane_index) {
  // The arena's pages come when it is first used: a thread that never copies pageable memory does without 16 MiB.
  auto fd = CreateSealedMemfd(fmt::format("tally-lane-{}", lane_index), shm::kLaneRegionBytes, kArenaOffset);
  if (!fd) return std::unexpected(fd.error());
  auto region = MappedRegion::Map(fd->get(), shm::kLaneRegionBytes);
  if (!region) return std::unexpected(region.error());
  auto* header = new (region->data()) shm::LaneHeader{};
  header->magic = shm::kLaneMagic;
  header->protocol_version = shm::kProtocolVersion;
  header->lane_index = lane_index;
  header->request_offset = kRequestOffset;
  header->request_bytes = shm::kRequestRingBytes;
  header->reply_offset = kReplyOffset;
  header->reply_bytes = shm::kReplyRingBytes;
  header->arena_offset = kArenaOffset;
  header->arena_chunk_bytes = shm::kArenaChunkBytes;
  header->arena_chunks = shm::kArenaChunks;
  return LaneRegion(std::move(*fd), std::move(*region));
}

}  // namespace tally::server
