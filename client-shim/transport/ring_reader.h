// The client's end of a reply ring (proto/shm/channel_abi.h): looks at the next record and gives its room back.
//
// One thread at a time; nothing blocks except WaitForRecord. A record that does not make sense is reported, not
// followed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/futex.h"
#include "proto/shm/channel_abi.h"

namespace tally::client_shim {

class RingReader {
 public:
  enum class Look { kEmpty, kRecord, kBroken };

  RingReader() = default;
  RingReader(std::byte* ring, uint32_t ring_bytes, shm::RingState* state)
      : ring_(ring), mask_(ring_bytes - 1), state_(state) {
    read_position_ = state->read_position.load(std::memory_order_relaxed);
  }

  // Whether a record is there; if so `*record` points at it, in the ring, until Consume.
  Look Peek(const shm::ReplyHeader** record) {
    while (true) {
      const uint64_t end = state_->write_position.load(std::memory_order_acquire);
      if (end == read_position_) return Look::kEmpty;
      const uint32_t offset = static_cast<uint32_t>(read_position_) & mask_;
      const auto* header = reinterpret_cast<const shm::ReplyHeader*>(ring_ + offset);
      const uint32_t size = header->size_bytes;
      if (size < sizeof(shm::ReplyHeader) || size % shm::kRecordAlignment != 0 || size > end - read_position_ ||
          size > mask_ + 1 - offset)
        return Look::kBroken;
      if (header->op != 0) {
        if (header->payload_bytes > size - sizeof(shm::ReplyHeader)) return Look::kBroken;
        *record = header;
        return Look::kRecord;
      }
      Advance(size);  // padding
    }
  }

  // Gives back the room of `record`, the one that Peek found.
  void Consume(const shm::ReplyHeader* record) { Advance(record->size_bytes); }

  // Sleeps until a record is published or `timeout` passes. False only when the time ran out.
  bool WaitForRecord(std::chrono::nanoseconds timeout) {
    const uint32_t doorbell = state_->data_doorbell.load(std::memory_order_relaxed);
    state_->reader_waiting.store(1, std::memory_order_seq_cst);
    if (state_->write_position.load(std::memory_order_seq_cst) != read_position_) {
      state_->reader_waiting.store(0, std::memory_order_relaxed);
      return true;
    }
    return FutexWait(state_->data_doorbell, doorbell, timeout);
  }

 private:
  void Advance(uint32_t size_bytes) {
    read_position_ += size_bytes;
    state_->read_position.store(read_position_, std::memory_order_seq_cst);
    if (state_->writer_waiting.load(std::memory_order_seq_cst) == 0) [[likely]]
      return;
    if (state_->writer_waiting.exchange(0, std::memory_order_seq_cst) == 0) return;
    state_->space_doorbell.fetch_add(1, std::memory_order_seq_cst);
    FutexWake(state_->space_doorbell, 1);
  }

  std::byte* ring_ = nullptr;
  uint32_t mask_ = 0;
  shm::RingState* state_ = nullptr;
  uint64_t read_position_ = 0;
};

}  // namespace tally::client_shim
