// Reads the request ring of a channel: look at positions once, check them, copy the record out, then let others
// validate the copy. The ring is hostile input; nothing here can be made to read outside it or to loop for ever.
//
// One thread (the channel's), except Wake.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "proto/shm/channel_abi.h"
#include "server/executor/channel/channel_region.h"

namespace tally::server {

struct Request {
  shm::RequestHeader header;
  std::span<const std::byte> payload;  // private copy, 16-byte aligned; valid until the next Read
};

class RequestReader {
 public:
  enum class Outcome { kRequest, kEmpty, kMalformed };

  // `region` must outlive the reader.
  explicit RequestReader(const ChannelRegion& region);

  // Takes the next record, if any; padding is skipped. After kMalformed, reason() says why and Read must not be called
  // again.
  Outcome Read(Request* request);
  // What a waiting reader may spend so that the next request does not wait for it to wake up: waking takes 5 to 300 us
  // (in a virtual machine an idle processor is given back to the host).
  struct Patience {
    std::chrono::nanoseconds longest_spin;  // looking all the time
    std::chrono::nanoseconds longest_doze;  // then, asleep, but never long enough for its processor to sleep deeply
  };
  static constexpr Patience kPatience{std::chrono::microseconds(500), std::chrono::nanoseconds(0)};
  // For programs whose latency is what counts: a service keeps its channel polling while its requests come more often
  // than the first, and wakes it soon while they come more often than the second.
  static constexpr Patience kPatienceForLatency{std::chrono::milliseconds(10), std::chrono::seconds(1)};

  // Called while no request comes, first after kFirstLook, with the time since about the last one. Returns after how
  // long it is to be called again; zero: not any more.
  using OnSilence = std::function<std::chrono::nanoseconds(std::chrono::nanoseconds silent_for)>;
  static constexpr auto kFirstLook = std::chrono::microseconds(100);

  // Blocks until Read may find something or `stop` is set: spins a little, longer (as `patience` allows) if requests
  // lately came soon after it had gone to sleep, then sleeps on the doorbell.
  void Wait(const std::atomic<bool>& stop, Patience patience = kPatience, const OnSilence& on_silence = {});
  // Looks for the next record that long, without sleeping: whether there is one now, or `stop` is set.
  bool LookFor(const std::atomic<bool>& stop, std::chrono::nanoseconds longest) const;
  // From any thread, after setting the `stop` that Wait watches.
  void Wake();
  const char* reason() const { return reason_; }

 private:
  Outcome Malformed(const char* reason);
  void PublishReadPosition();
  bool IsHalfFull(uint64_t write_position) const;
  void PrefetchNext(size_t bytes) const;
  bool HasData() const;
  class Silence;
  bool Spin(const std::atomic<bool>& stop, std::chrono::nanoseconds longest, Silence& silence) const;
  void LearnFrom(std::chrono::nanoseconds waited, std::chrono::nanoseconds longest_spin);

  shm::RingState& state_;
  const std::byte* ring_;
  uint64_t read_position_ = 0;   // ours; the copy in shared memory is write-only to us
  uint64_t write_position_ = 0;  // as last seen and checked: looked at again only when all up to it has been read
  std::chrono::nanoseconds long_spin_{0};  // beyond the first pauses, while gaps between requests are short
  std::unique_ptr<std::byte[]> copy_;
  const char* reason_ = "";
};

}  // namespace tally::server
