// The memory of one channel, as the executor sees it: creates it sealed, maps it, fills the header.
//
// Layout and rules: proto/shm/channel_abi.h. Owned by the channel's thread after creation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/mapped_region.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/shm/channel_abi.h"

namespace tally::server {

class ChannelRegion {
 public:
  // kResourceExhausted when shared memory is used up.
  static Result<ChannelRegion> Create(uint32_t channel_index);

  shm::ChannelHeader& header() const { return *reinterpret_cast<shm::ChannelHeader*>(region_.data()); }
  // Offsets are our own constants: the header in shared memory is for the client and never read back.
  std::byte* request_ring() const { return region_.data() + kRequestOffset; }
  std::byte* reply_ring() const { return region_.data() + kReplyOffset; }
  std::byte* arena() const { return region_.data() + kArenaOffset; }
  static constexpr uint64_t kArenaBytes = uint64_t{shm::kArenaChunkBytes} * shm::kArenaChunks;
  // To be passed to the client.
  int fd() const { return fd_.get(); }

 private:
  static constexpr uint32_t kRequestOffset = shm::kHeaderBytes;
  static constexpr uint32_t kReplyOffset = kRequestOffset + shm::kRequestRingBytes;
  static constexpr uint32_t kArenaOffset = kReplyOffset + shm::kReplyRingBytes;
  static_assert(kArenaOffset + kArenaBytes == shm::kChannelRegionBytes);

  ChannelRegion(UniqueFd fd, MappedRegion region) : fd_(std::move(fd)), region_(std::move(region)) {}

  UniqueFd fd_;
  MappedRegion region_;
};

}  // namespace tally::server
