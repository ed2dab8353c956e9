#include "server/executor/channel/channel_region.h"

#include <fmt/format.h>

#include <new>

#include "proto/shm/handshake_abi.h"

namespace tally::server {

Result<ChannelRegion> ChannelRegion::Create(uint32_t channel_index) {
  // The arena's pages come when it is first used: a thread that never copies pageable memory does without 16 MiB.
  auto fd = CreateSealedMemfd(fmt::format("tally-channel-{}", channel_index), shm::kChannelRegionBytes, kArenaOffset);
  if (!fd) return std::unexpected(fd.error());
  auto region = MappedRegion::Map(fd->get(), shm::kChannelRegionBytes);
  if (!region) return std::unexpected(region.error());
  auto* header = new (region->data()) shm::ChannelHeader{};
  header->magic = shm::kChannelMagic;
  header->protocol_version = shm::kProtocolVersion;
  header->channel_index = channel_index;
  header->request_offset = kRequestOffset;
  header->request_bytes = shm::kRequestRingBytes;
  header->reply_offset = kReplyOffset;
  header->reply_bytes = shm::kReplyRingBytes;
  header->arena_offset = kArenaOffset;
  header->arena_chunk_bytes = shm::kArenaChunkBytes;
  header->arena_chunks = shm::kArenaChunks;
  return ChannelRegion(std::move(*fd), std::move(*region));
}

}  // namespace tally::server
