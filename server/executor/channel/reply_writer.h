// Writes the reply ring of a channel. The reader's position is hostile input: a nonsensical one is reported, never
// used.
//
// One thread (the channel's), except Wake.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/shm/channel_abi.h"
#include "server/executor/channel/channel_region.h"

namespace tally::server {

inline constexpr size_t kMaxReplyPayloadBytes = shm::kMaxReplyBytes - sizeof(shm::ReplyHeader);

class ReplyWriter {
 public:
  explicit ReplyWriter(const ChannelRegion& region);

  // Waits for space while the client is slow to read, until `stop` is set. False: stopped, or the client's position
  // makes no sense. `payload` is at most kMaxReplyPayloadBytes.
  bool Write(uint16_t op, uint16_t flags, uint32_t cuda_result, std::span<const std::byte> payload,
             const std::atomic<bool>& stop);
  // A reply will be written soon: fetches its place from the client's core.
  void Prefetch() const;
  // From any thread, after setting `stop`.
  void Wake();

 private:
  bool HasRoom(uint64_t wanted_bytes) const;
  bool WaitForSpace(uint64_t wanted_bytes, const std::atomic<bool>& stop);

  shm::RingState& state_;
  std::byte* ring_;
  uint64_t write_position_ = 0;
  uint64_t read_position_ = 0;  // as last seen and checked
};

}  // namespace tally::server
