// What the client knows to be complete without asking the executor, counted in tickets (proto/shm/channel_abi.h,
// ORDER): a wait that succeeded with ticket t says that all work of its stream with a lower ticket is complete.
#pragma once

#include <atomic>
#include <cstdint>

namespace tally::client_shim {

// "All work before this ticket is complete." Only ever grows.
class CompletedBefore {
 public:
  CompletedBefore() = default;
  CompletedBefore(const CompletedBefore& other) : ticket_(other.ticket_.load(std::memory_order_relaxed)) {}
  CompletedBefore& operator=(const CompletedBefore& other) {
    ticket_.store(other.ticket_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return *this;
  }

  bool Covers(uint64_t ticket) const { return ticket < ticket_.load(std::memory_order_acquire); }
  void Raise(uint64_t ticket) {
    uint64_t seen = ticket_.load(std::memory_order_relaxed);
    while (seen < ticket && !ticket_.compare_exchange_weak(seen, ticket, std::memory_order_release)) {
    }
  }

 private:
  std::atomic<uint64_t> ticket_{0};
};

class Process;
struct Event;
class Lane;

// A wait for a resolved stream, or for a whole context, succeeded: `ticket` is the request's.
void NoteStreamComplete(Process* process, uint64_t stream_word, uint64_t ticket);
void NoteContextComplete(Process* process, uint32_t context, uint64_t ticket);

// Whether a resolved stream has nothing to do, as far as can be said here: it was found complete by the latest request
// of this whole process.
bool IsKnownIdle(const Process& process, const Lane& lane, uint64_t stream_word);
// Whether the event's last recording is known to have happened.
bool IsKnownComplete(const Process& process, const Event& event);

}  // namespace tally::client_shim
