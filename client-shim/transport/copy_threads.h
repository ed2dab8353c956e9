// Copies bytes with several threads: one thread moves 10 to 15 GB/s, less than the native driver's pageable copies.
//
// A guest's threads: none before the first large copy, at most three, signals blocked, asleep soon after a copy, never
// joined. A fork's child has none, and a Process of its own to start them from. One copy uses them at a time: a program
// that copies from several threads has the parallelism already, and its other copies go on alone.
//
// The slices of a copy are claimed one by one, by the caller too: a helper thread that is late costs nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tally::client_shim {

class CopyThreads {
 public:
  // Threads beside the caller's on a machine with so many processors.
  static unsigned NumFor(unsigned num_cpus);

  explicit CopyThreads(unsigned num_threads) : num_threads_(num_threads) {}
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;

  // While one lives, and if it got them, the threads keep polling between the pieces of a large copy.
  class Turn {
   public:
    // `size_bytes`: of the whole copy; a small one does not ask.
    Turn(CopyThreads& threads, size_t size_bytes);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // memcpy; returns when all of it is done.
    void Copy(void* destination, const void* source, size_t size_bytes);

   private:
    CopyThreads* threads_;  // null: alone
  };

 private:
  friend class Turn;
  static constexpr size_t kSliceBytes = 128 << 10;

  bool Start();
  static void* Run(void* self);
  void Copy(std::byte* destination, const std::byte* source, size_t size_bytes);
  // Takes slices of the present piece until none is left.
  void TakeSlices();
  void SleepUntilTurn();

  const unsigned num_threads_;
  bool is_started_ = false;             // by the holder of the turn
  std::atomic<bool> is_taken_{false};   // the turn
  std::atomic<uint32_t> bell_{0};       // raised when a turn begins
  std::atomic<uint32_t> is_active_{0};  // 1 during a turn
  std::atomic<uint32_t> num_asleep_{0};

  // The present piece. `claims_` is its number (upper half) and how many slices nobody took yet: whoever takes one by
  // compare-exchange has read the fields of that very piece.
  alignas(64) std::atomic<uint64_t> claims_{0};
  std::atomic<std::byte*> destination_{nullptr};
  std::atomic<const std::byte*> source_{nullptr};
  std::atomic<size_t> size_bytes_{0};
  alignas(64) std::atomic<uint32_t> num_done_{0};
};

}  // namespace tally::client_shim
