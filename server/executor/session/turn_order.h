// Carries out the requests of all lanes of one session in the order of their tickets (proto/shm/channel_abi.h, ORDER).
//
// The holder of a turn has the session to itself: everything that SessionState says is "guarded by the turn" needs no
// other lock. That holds against hostile clients too: of two requests with the same ticket only one gets the turn.
// With one active lane, Take and Pass are one atomic operation each and touch no shared cache line of others.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

namespace tally::server {

class TurnOrder {
 public:
  enum class Outcome {
    kMine,
    kStopped,   // `stop` was set while waiting
    kNonsense,  // the ticket was used before: the client lies
  };

  // Waits until all lower tickets have passed, then holds the turn of `ticket` until Pass.
  Outcome Take(uint64_t ticket, const std::atomic<bool>& stop);
  // Lets the next ticket go ahead. Only by the holder, once.
  void Pass(uint64_t ticket);
  // Declares that `ticket` needs no turn: it is passed over when its time comes. kMine means done.
  Outcome Skip(uint64_t ticket);
  // Wakes all waiting lanes so that they see their `stop`.
  void WakeAll();

 private:
  // A client that declares more than this is not waiting for callbacks, it is filling our memory.
  static constexpr size_t kMaxSkipped = 4096;

  void PassSkipped();  // mutex_ held

  alignas(64) std::atomic<uint64_t> state_{0};  // twice the next ticket, plus 1 while it is held
  std::atomic<uint32_t> num_skipped_{0};
  std::atomic<uint32_t> num_sleepers_{0};
  std::atomic<uint32_t> doorbell_{0};
  std::mutex mutex_;
  std::set<uint64_t> skipped_;  // guarded by mutex_
};

}  // namespace tally::server
