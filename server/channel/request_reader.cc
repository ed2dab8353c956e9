#include "server/channel/request_reader.h"

#include <chrono>
#include <cstring>

#include "base/futex.h"
#include "server/channel/spin.h"

namespace tally::server {
namespace {

constexpr uint64_t kMask = shm::kRequestRingBytes - 1;
static_assert((shm::kRequestRingBytes & kMask) == 0);
// What a padding record shows at least: size_bytes, op, flags, ticket.
constexpr uint64_t kMinRecordBytes = shm::kRecordAlignment;

}  // namespace

RequestReader::RequestReader(const LaneRegion& region)
    : state_(region.header().request),
      ring_(region.request_ring()),
      copy_(std::make_unique<std::byte[]>(shm::kMaxRequestBytes)) {}

RequestReader::Outcome RequestReader::Malformed(const char* reason) {
  reason_ = reason;
  return Outcome::kMalformed;
}

void RequestReader::PublishReadPosition() {
  // seq_cst: the writer sets writer_waiting and then looks at read_position.
  state_.read_position.store(read_position_, std::memory_order_seq_cst);
  if (state_.writer_waiting.load(std::memory_order_seq_cst) != 0) {
    state_.writer_waiting.store(0, std::memory_order_seq_cst);
    state_.space_doorbell.fetch_add(1, std::memory_order_seq_cst);
    FutexWake(state_.space_doorbell, 1);
  }
}

RequestReader::Outcome RequestReader::Read(Request* request) {
  // At most two records: one padding, then the one at the ring's start. Two paddings in a row make no sense.
  for (int i = 0; i < 2; ++i) {
    const uint64_t write_position = state_.write_position.load(std::memory_order_acquire);
    const uint64_t available = write_position - read_position_;
    if (available == 0) return Outcome::kEmpty;
    if (available > shm::kRequestRingBytes || available % shm::kRecordAlignment != 0) {
      return Malformed("request ring: impossible write position");
    }
    const uint64_t offset = read_position_ & kMask;
    const uint64_t contiguous = shm::kRequestRingBytes - offset;
    uint32_t size_bytes = 0;
    uint16_t op = 0;
    std::memcpy(&size_bytes, ring_ + offset, sizeof(size_bytes));
    std::memcpy(&op, ring_ + offset + offsetof(shm::RequestHeader, op), sizeof(op));
    if (size_bytes < kMinRecordBytes || size_bytes % shm::kRecordAlignment != 0 || size_bytes > available ||
        size_bytes > contiguous) {
      return Malformed("request ring: impossible record size");
    }
    if (op == 0) {
      read_position_ += size_bytes;
      PublishReadPosition();
      continue;
    }
    if (size_bytes < sizeof(shm::RequestHeader) || size_bytes > shm::kMaxRequestBytes) {
      return Malformed("request ring: record too short or too long");
    }
    std::memcpy(copy_.get(), ring_ + offset, size_bytes);
    std::memcpy(&request->header, copy_.get(), sizeof(shm::RequestHeader));
    request->header.size_bytes = size_bytes;  // the copy may differ from what was checked
    request->header.op = op;
    if (request->header.payload_bytes > size_bytes - sizeof(shm::RequestHeader)) {
      return Malformed("request: payload longer than its record");
    }
    request->payload = {copy_.get() + sizeof(shm::RequestHeader), request->header.payload_bytes};
    read_position_ += size_bytes;
    PublishReadPosition();
    return Outcome::kRequest;
  }
  return Malformed("request ring: padding after padding");
}

bool RequestReader::HasData() const { return state_.write_position.load(std::memory_order_seq_cst) != read_position_; }

void RequestReader::Wait(const std::atomic<bool>& stop) {
  for (int i = SpinPauses(); i > 0; --i) {
    if (HasData() || stop.load(std::memory_order_acquire)) return;
    CpuRelax();
  }
  while (!stop.load(std::memory_order_seq_cst)) {
    const uint32_t bell = state_.data_doorbell.load(std::memory_order_seq_cst);
    state_.reader_waiting.store(1, std::memory_order_seq_cst);
    if (HasData() || stop.load(std::memory_order_seq_cst)) break;
    // The long time-out only guards against a client that wipes our doorbell; Wake ends it at once.
    FutexWait(state_.data_doorbell, bell, std::chrono::hours(1));
    if (HasData()) break;
  }
  state_.reader_waiting.store(0, std::memory_order_seq_cst);
}

void RequestReader::Wake() {
  state_.data_doorbell.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(state_.data_doorbell, 1);
}

}  // namespace tally::server
