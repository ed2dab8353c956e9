// What the client knows to be complete without asking the executor, counted in sequence numbers
// (proto/shm/channel_abi.h, ORDER): a wait that succeeded with sequence number t says that all work of its stream with
// a lower sequence number is complete.
#pragma once

#include <atomic>
#include <cstdint>

namespace tally::client_shim {

// "All work before this sequence number is complete." Only ever grows.
class CompletedBefore {
 public:
  CompletedBefore() = default;
  CompletedBefore(const CompletedBefore& other)
      : sequence_number_(other.sequence_number_.load(std::memory_order_relaxed)) {}
  CompletedBefore& operator=(const CompletedBefore& other) {
    sequence_number_.store(other.sequence_number_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return *this;
  }

  bool Covers(uint64_t sequence_number) const {
    return sequence_number < sequence_number_.load(std::memory_order_acquire);
  }
  void Raise(uint64_t sequence_number) {
    uint64_t seen = sequence_number_.load(std::memory_order_relaxed);
    while (seen < sequence_number &&
           !sequence_number_.compare_exchange_weak(seen, sequence_number, std::memory_order_release)) {
    }
  }

 private:
  std::atomic<uint64_t> sequence_number_{0};
};

class Process;
struct Event;
class Channel;

// A wait for a resolved stream, or for a whole context, succeeded: `sequence_number` is the request's.
void NoteStreamComplete(Process* process, uint64_t stream_word, uint64_t sequence_number);
void NoteContextComplete(Process* process, uint32_t context, uint64_t sequence_number);

// Whether a resolved stream has nothing to do, as far as can be said here: it was found complete by the latest request
// of this whole process.
bool IsKnownIdle(const Process& process, const Channel& channel, uint64_t stream_word);
// Whether the event's last recording is known to have happened.
bool IsKnownComplete(const Process& process, const Event& event);

}  // namespace tally::client_shim
