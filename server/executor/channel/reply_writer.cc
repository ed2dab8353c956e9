#include "server/executor/channel/reply_writer.h"

#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/futex.h"
#include "base/prefetch.h"
#include "server/executor/channel/spin.h"

namespace tally::server {
namespace {
constexpr uint64_t kMask = shm::kReplyRingBytes - 1;
static_assert((shm::kReplyRingBytes & kMask) == 0);
}  // namespace

ReplyWriter::ReplyWriter(const ChannelRegion& region) : state_(region.header().reply), ring_(region.reply_ring()) {}

bool ReplyWriter::HasRoom(uint64_t wanted_bytes) const {
  return shm::kReplyRingBytes - (write_position_ - read_position_) >= wanted_bytes;
}

bool ReplyWriter::WaitForSpace(uint64_t wanted_bytes, const std::atomic<bool>& stop) {
  // The client's core has the line with its position: not looked at before it matters.
  if (HasRoom(wanted_bytes)) return true;
  for (int spins = SpinPauses();; --spins) {
    const uint32_t bell = state_.space_doorbell.load(std::memory_order_seq_cst);
    const uint64_t seen = state_.read_position.load(std::memory_order_seq_cst);
    if (write_position_ - seen > shm::kReplyRingBytes) return false;
    read_position_ = seen;
    if (HasRoom(wanted_bytes)) break;
    if (stop.load(std::memory_order_seq_cst)) return false;
    if (spins > 0) {
      CpuRelax();
      continue;
    }
    if (state_.writer_waiting.exchange(1, std::memory_order_seq_cst) == 0) continue;  // look once more, then sleep
    FutexWait(state_.space_doorbell, bell, std::chrono::seconds(1));
  }
  state_.writer_waiting.store(0, std::memory_order_relaxed);
  return true;
}

bool ReplyWriter::Write(uint16_t op, uint16_t flags, uint32_t cuda_result, std::span<const std::byte> payload,
                        const std::atomic<bool>& stop) {
  CHECK(payload.size() <= kMaxReplyPayloadBytes);
  const uint64_t unpadded = sizeof(shm::ReplyHeader) + payload.size();
  const uint64_t size = (unpadded + shm::kRecordAlignment - 1) & ~uint64_t{shm::kRecordAlignment - 1};
  const uint64_t contiguous = shm::kReplyRingBytes - (write_position_ & kMask);
  const uint64_t padding = contiguous < size ? contiguous : 0;
  if (!WaitForSpace(size + padding, stop)) return false;
  if (padding != 0) {
    const shm::ReplyHeader header{static_cast<uint32_t>(padding), 0, 0, 0, 0};
    std::memcpy(ring_ + (write_position_ & kMask), &header, sizeof(header));
    write_position_ += padding;
  }
  std::byte* record = ring_ + (write_position_ & kMask);
  const shm::ReplyHeader header{static_cast<uint32_t>(size), op, flags, cuda_result,
                                static_cast<uint32_t>(payload.size())};
  std::memcpy(record, &header, sizeof(header));
  if (!payload.empty()) std::memcpy(record + sizeof(header), payload.data(), payload.size());
  write_position_ += size;
  state_.write_position.store(write_position_, std::memory_order_seq_cst);
  if (state_.reader_waiting.load(std::memory_order_seq_cst) != 0) {
    state_.reader_waiting.store(0, std::memory_order_seq_cst);
    state_.data_doorbell.fetch_add(1, std::memory_order_seq_cst);
    FutexWake(state_.data_doorbell, 1);
  }
  return true;
}

void ReplyWriter::Prefetch() const { PrefetchForWrite(ring_ + (write_position_ & kMask)); }

void ReplyWriter::Wake() {
  state_.space_doorbell.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(state_.space_doorbell, 1);
}

}  // namespace tally::server
