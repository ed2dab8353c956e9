// Carries out the requests of all channels of one session in the order of their sequence numbers
// (proto/shm/channel_abi.h, ORDER).
//
// The holder of the sequencer has the session to itself: everything that SessionState says is "guarded by the
// sequencer" needs no other lock. That holds against hostile clients too: of two requests with the same sequence number
// only one gets to hold it. With one active channel, Take and Pass are one atomic operation each and touch no shared
// cache line of others.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

namespace tally::server {

class Sequencer {
 public:
  enum class Outcome {
    kMine,
    kStopped,   // `stop` was set while waiting
    kNonsense,  // the number was used before: the client lies
  };

  // Waits until all lower sequence numbers have passed, then holds the sequencer for `sequence_number` until Pass.
  Outcome Take(uint64_t sequence_number, const std::atomic<bool>& stop);
  // Lets the next number go ahead. Only by the holder, once.
  void Pass(uint64_t sequence_number);
  // Declares that `sequence_number` need not hold the sequencer: it is passed over when its time comes. kMine means
  // done.
  Outcome Skip(uint64_t sequence_number);
  // Holds the sequencer for no request, in front of the next number, until Return. False: somebody holds it.
  bool TryBorrow();
  void Return();
  // Wakes all waiting channels so that they see their `stop`.
  void WakeAll();

 private:
  // A client that declares more than this is not waiting for callbacks, it is filling our memory.
  static constexpr size_t kMaxSkipped = 4096;

  static constexpr uint64_t kBorrowed = uint64_t{1} << 63;  // of state_; numbers are below half of it

  // The sequencer is free again.
  void LetGoOn();
  void PassSkipped();  // mutex_ held
  uint64_t StateBesideVisits() const { return state_.load(std::memory_order_seq_cst) & ~kBorrowed; }

  // Twice the next number, plus 1 while its request holds the sequencer, plus kBorrowed while somebody visits.
  alignas(64) std::atomic<uint64_t> state_{0};
  std::atomic<uint32_t> num_skipped_{0};
  std::atomic<uint32_t> num_sleepers_{0};
  std::atomic<uint32_t> doorbell_{0};
  std::mutex mutex_;
  std::set<uint64_t> skipped_;  // guarded by mutex_
};

}  // namespace tally::server
