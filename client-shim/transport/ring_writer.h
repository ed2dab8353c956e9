// The client's end of a request ring (proto/shm/channel_abi.h): reserves contiguous records and publishes them.
//
// One thread at a time. Nothing here blocks except WaitForSpace; nothing allocates. The reader is the executor, which
// the client trusts: a nonsensical read position can lose requests, but not write outside the ring.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/futex.h"
#include "base/prefetch.h"
#include "proto/shm/channel_abi.h"

namespace tally::client_shim {

class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(std::byte* ring, uint32_t ring_bytes, shm::RingState* state)
      : ring_(ring), mask_(ring_bytes - 1), state_(state) {
    write_position_ = state->write_position.load(std::memory_order_relaxed);
    read_position_ = state->read_position.load(std::memory_order_acquire);
  }

  // `size_bytes` (a multiple of kRecordAlignment, at most a quarter of the ring) of contiguous room, or null when the
  // ring is too full now. The record becomes visible with Publish; reserving again first abandons it.
  std::byte* TryReserve(uint32_t size_bytes) {
    const uint32_t offset = static_cast<uint32_t>(write_position_) & mask_;
    const uint32_t to_end = mask_ + 1 - offset;
    const uint32_t padding = to_end < size_bytes ? to_end : 0;
    if (!HasRoom(padding + size_bytes)) return nullptr;
    if (padding != 0) [[unlikely]] {
      // Only the first 16 bytes exist for certain; they hold everything a padding record has.
      auto* header = reinterpret_cast<shm::RequestHeader*>(ring_ + offset);
      header->size_bytes = padding;
      header->op = 0;
      header->flags = 0;
      header->sequence_number = 0;
    }
    reserved_end_ = write_position_ + padding + size_bytes;
    return ring_ + (static_cast<uint32_t>(write_position_ + padding) & mask_);
  }

  // Makes the reserved record visible and wakes the reader if it sleeps.
  void Publish() {
    write_position_ = reserved_end_;
    // Sequentially consistent: either the reader sees the record, or we see that it is about to sleep.
    state_->write_position.store(write_position_, std::memory_order_seq_cst);
    if (state_->reader_waiting.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      WakeReader();
    PrefetchAhead();
  }

  // Sleeps until the reader makes room or `timeout` passes. False only when the time ran out.
  bool WaitForSpace(uint32_t size_bytes, std::chrono::nanoseconds timeout) {
    const uint32_t doorbell = state_->space_doorbell.load(std::memory_order_relaxed);
    state_->writer_waiting.store(1, std::memory_order_seq_cst);
    if (TryReserve(size_bytes) != nullptr) {
      state_->writer_waiting.store(0, std::memory_order_relaxed);
      return true;
    }
    return FutexWait(state_->space_doorbell, doorbell, timeout);
  }

 private:
  bool HasRoom(uint32_t size_bytes) {
    const uint64_t capacity = uint64_t{mask_} + 1;
    if (write_position_ - read_position_ + size_bytes <= capacity) return true;
    // Only look at the other side's cache line when our last look says "full".
    read_position_ = state_->read_position.load(std::memory_order_seq_cst);
    return write_position_ - read_position_ + size_bytes <= capacity;
  }

  // The reader's core has had the lines of the records to come since it read them last round; taking a sequence number
  // and publishing would wait for each. A little ahead: the next record is often written at once.
  void PrefetchAhead() const {
    for (uint64_t offset = 128; offset < 256; offset += 64)
      PrefetchForWrite(ring_ + ((write_position_ + offset) & mask_));
  }

  void WakeReader() {
    if (state_->reader_waiting.exchange(0, std::memory_order_seq_cst) == 0) return;
    state_->data_doorbell.fetch_add(1, std::memory_order_seq_cst);
    FutexWake(state_->data_doorbell, 1);
  }

  std::byte* ring_ = nullptr;
  uint32_t mask_ = 0;
  shm::RingState* state_ = nullptr;
  uint64_t write_position_ = 0;
  uint64_t read_position_ = 0;  // as last seen
  uint64_t reserved_end_ = 0;
};

}  // namespace tally::client_shim
