#include "server/executor/channel/request_reader.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/futex.h"
#include "server/executor/channel/spin.h"

namespace tally::server {
namespace {

constexpr uint64_t kMask = shm::kRequestRingBytes - 1;
static_assert((shm::kRequestRingBytes & kMask) == 0);
// What a padding record shows at least: size_bytes, op, flags, sequence number.
constexpr uint64_t kMinRecordBytes = shm::kRecordAlignment;
constexpr size_t kCacheLineBytes = 64;
// A launch with all the parameters that it can have.
constexpr size_t kMostPrefetchedBytes = 4096 + 128;
constexpr auto kShortestLongSpin = std::chrono::microseconds(20);
constexpr int kPausesPerYield = 8;
// The longest sleep while dozing: below what the host of a virtual machine waits before it gives the processor away,
// and costing some hundredths of a processor.
constexpr auto kDoze = std::chrono::microseconds(200);

}  // namespace

// One wait, as far as whoever is called in silence goes.
class RequestReader::Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit Silence(const OnSilence& on_silence) : on_silence_(on_silence), is_over_(!on_silence) {}

  void OnQuiet(Time now) {
    if (is_over_) return;
    if (since_ == Time()) {
      since_ = now;
      due_ = now + kFirstLook;
    }
    if (now < due_) return;
    const std::chrono::nanoseconds pause = on_silence_(now - since_);
    is_over_ = pause <= pause.zero();
    due_ = now + pause;
  }
  std::chrono::nanoseconds UntilDue(Time now) const { return is_over_ ? std::chrono::hours(1) : due_ - now; }

 private:
  const OnSilence& on_silence_;
  bool is_over_;
  Time since_, due_;
};

RequestReader::RequestReader(const ChannelRegion& region)
    : state_(region.header().request),
      ring_(region.request_ring()),
      copy_(std::make_unique<std::byte[]>(shm::kMaxRequestBytes)) {}

RequestReader::Outcome RequestReader::Malformed(const char* reason) {
  reason_ = reason;
  return Outcome::kMalformed;
}

// A writer that waits for room is woken when half of the ring is free, which is enough for any record: woken for each
// record read, it would fill the gap and wait again, at the price of two system calls and a switch per request.
void RequestReader::PublishReadPosition() {
  if (IsHalfFull(write_position_)) {
    state_.read_position.store(read_position_, std::memory_order_release);
    return;
  }
  // seq_cst: the writer sets writer_waiting and then looks at read_position.
  state_.read_position.store(read_position_, std::memory_order_seq_cst);
  if (state_.writer_waiting.load(std::memory_order_seq_cst) == 0) return;
  // What a waiting writer has written stands still: while it is much, more of it will be read and published.
  if (IsHalfFull(state_.write_position.load(std::memory_order_relaxed))) return;
  state_.writer_waiting.store(0, std::memory_order_seq_cst);
  state_.space_doorbell.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(state_.space_doorbell, 1);
}

bool RequestReader::IsHalfFull(uint64_t write_position) const {
  return write_position - read_position_ > shm::kRequestRingBytes / 2;
}

// The client's core wrote the next record: fetching it while this one is carried out hides several cache misses. It is
// most often like this one; and what lies behind the last record seen is being written.
void RequestReader::PrefetchNext(size_t bytes) const {
  const std::byte* next = ring_ + (read_position_ & kMask);
  bytes = std::min({bytes, kMostPrefetchedBytes, static_cast<size_t>(write_position_ - read_position_)});
  for (size_t offset = 0; offset < bytes; offset += kCacheLineBytes) __builtin_prefetch(next + offset);
}

RequestReader::Outcome RequestReader::Read(Request* request) {
  // At most two records: one padding, then the one at the ring's start. Two paddings in a row make no sense.
  for (int i = 0; i < 2; ++i) {
    if (write_position_ == read_position_) {
      const uint64_t seen = state_.write_position.load(std::memory_order_acquire);
      const uint64_t written = seen - read_position_;
      if (written == 0) return Outcome::kEmpty;
      if (written > shm::kRequestRingBytes || written % shm::kRecordAlignment != 0) {
        return Malformed("request ring: impossible write position");
      }
      write_position_ = seen;
    }
    const uint64_t available = write_position_ - read_position_;
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
    PrefetchNext(size_bytes);
    return Outcome::kRequest;
  }
  return Malformed("request ring: padding after padding");
}

bool RequestReader::HasData() const { return state_.write_position.load(std::memory_order_seq_cst) != read_position_; }

// The first pauses alone, then giving the core to whoever else wants it at every look.
bool RequestReader::Spin(const std::atomic<bool>& stop, std::chrono::nanoseconds longest, Silence& silence) const {
  for (int i = SpinPauses(); i > 0; --i) {
    if (HasData() || stop.load(std::memory_order_acquire)) return true;
    CpuRelax();
  }
  if (longest == longest.zero()) return false;
  auto now = std::chrono::steady_clock::now();
  for (const auto until = now + longest; now < until; now = std::chrono::steady_clock::now()) {
    silence.OnQuiet(now);
    for (int i = 0; i < kPausesPerYield; ++i) {
      if (HasData() || stop.load(std::memory_order_acquire)) return true;
      CpuRelax();
    }
    ::sched_yield();
  }
  return false;
}

bool RequestReader::LookFor(const std::atomic<bool>& stop, std::chrono::nanoseconds longest) const {
  const OnSilence nobody;
  Silence silence(nobody);
  return Spin(stop, longest, silence);
}

// Spinning pays while the gaps between requests are shorter than the longest spin, which bounds what is wasted.
void RequestReader::LearnFrom(std::chrono::nanoseconds waited, std::chrono::nanoseconds longest_spin) {
  if (!MaySpinLong()) return;
  if (waited < longest_spin) {
    long_spin_ = std::min(longest_spin, std::max(long_spin_, waited * 2));
  } else {
    long_spin_ = long_spin_ > kShortestLongSpin ? long_spin_ / 2 : long_spin_.zero();
  }
}

void RequestReader::Wait(const std::atomic<bool>& stop, Patience patience, const OnSilence& on_silence) {
  long_spin_ = std::min(long_spin_, patience.longest_spin);
  Silence silence(on_silence);
  if (Spin(stop, long_spin_, silence)) return;
  const auto asleep_since = std::chrono::steady_clock::now();
  const auto dozes_until = asleep_since + patience.longest_doze;
  while (!stop.load(std::memory_order_seq_cst)) {
    silence.OnQuiet(std::chrono::steady_clock::now());
    const uint32_t bell = state_.data_doorbell.load(std::memory_order_seq_cst);
    state_.reader_waiting.store(1, std::memory_order_seq_cst);
    if (HasData() || stop.load(std::memory_order_seq_cst)) break;
    // The long time-out only guards against a client that wipes our doorbell; Wake ends it at once.
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::nanoseconds longest =
        now < dozes_until ? kDoze : std::chrono::nanoseconds(std::chrono::hours(1));
    const std::chrono::nanoseconds limit = std::min(longest, silence.UntilDue(now));
    if (limit > limit.zero()) FutexWait(state_.data_doorbell, bell, limit);
    if (HasData()) break;
  }
  state_.reader_waiting.store(0, std::memory_order_seq_cst);
  LearnFrom(std::chrono::steady_clock::now() - asleep_since, patience.longest_spin);
}

void RequestReader::Wake() {
  state_.data_doorbell.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(state_.data_doorbell, 1);
}

}  // namespace tally::server
