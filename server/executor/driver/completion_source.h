// What a device's streams have come to. Whatever waits for work on it, polls it or measures it is fed from here: the
// one place that asks the driver for that, and the one pool of events. One source per device (devices.h).
//
//   stream   | K1 | K2 | mark | K3 | ...       Put: behind all that is on the stream so far
//                        ^ HasEnded: so have K1 and K2
//
// A mark is an event of the driver underneath. A record costs 0.1 to 0.3 us, a value that the stream writes into
// pinned memory 0.9 us: no such words, then. The one word that streams wait for themselves is written by a kernel
// (issue/gated_queue.h).
//
// There is no thread here, and none for all who look: each looks at its own pace. Whoever stops gated queues spins
// until they have left, whoever asks workers to yield waits for that up to 20 ms and then for the driver, whoever
// announces high-priority work must take nothing from it and sleeps for 50 us at a time. One thread for all would have
// each wait for the others.
//
// A context that is lost: its marks have ended, and TakeError says so to one who asks. Thread-safe; a mark belongs to
// one thread at a time.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class CompletionSource;

enum class MarkKind : uint8_t { kPlain, kTimed };

// A place in a stream's work. Outlives the stream, where it says what it said before, but not its source. May go at any
// time: an event that is still to come is not used for another mark before it has.
class Mark {
 public:
  Mark() = default;  // of nothing: it has ended
  Mark(Mark&& other) noexcept { *this = std::move(other); }
  Mark& operator=(Mark&& other) noexcept;
  ~Mark() { Clear(); }

  void Clear();
  bool exists() const { return event_ != nullptr; }
  // That it was put on last, perhaps destroyed since. Null: on none.
  CUstream stream() const { return stream_; }

  // CUDA_SUCCESS: it has ended. CUDA_ERROR_NOT_READY: not yet. All else: the context is lost.
  CUresult State() const;
  bool HasEnded() const { return State() != CUDA_ERROR_NOT_READY; }
  // The driver's own wait.
  CUresult Await() const;
  // What is put on that stream from now on waits for it.
  CUresult HoldBack(CUstream stream) const;

 private:
  friend class CompletionSource;
  CompletionSource* source_ = nullptr;
  CUevent event_ = nullptr;
  CUstream stream_ = nullptr;
  MarkKind kind_ = MarkKind::kPlain;
  mutable bool has_ended_ = true;  // once seen it is not asked again
};

class CompletionSource {
 public:
  explicit CompletionSource(const DriverTable& driver) : driver_(driver) {}
  ~CompletionSource() { Clear(); }
  CompletionSource(const CompletionSource&) = delete;
  CompletionSource& operator=(const CompletionSource&) = delete;

  // Behind all that is on the stream now. One that exists is moved there, without pool or lock, if it is of this source
  // and kind. After an error it is where it was. The device's context must be current.
  CUresult Put(CUstream stream, Mark* mark, MarkKind kind = MarkKind::kPlain);
  // So that all that Put can fail of is a lost context. Until then the mark has ended.
  CUresult Prepare(Mark* mark, MarkKind kind = MarkKind::kPlain);
  // From one timed mark to another, as the GPU saw them. None: one has not ended.
  std::optional<std::chrono::nanoseconds> Between(const Mark& begin, const Mark& end) const;
  // What the context was lost of: to one who asks after some mark has met it. CUDA_SUCCESS to all others.
  CUresult TakeError();
  // Gives back what no mark uses.
  void Clear();

 private:
  friend class Mark;
  struct Pool {
    std::vector<CUevent> ended;
    std::deque<CUevent> pending;  // when last asked
  };

  bool IsOurs(const Mark& mark, MarkKind kind) const;
  Pool& PoolOf(MarkKind kind) { return pools_[static_cast<size_t>(kind)]; }
  CUevent TakeFromPool(MarkKind kind);
  CUresult Record(CUstream stream, Mark* mark);
  void Return(const Mark& mark);
  void NoteError(CUresult result);

  const DriverTable& driver_;
  std::atomic<int> error_{CUDA_SUCCESS};  // the first that cost the context
  std::atomic<bool> is_error_taken_{false};
  std::mutex mutex_;
  std::array<Pool, 2> pools_;  // guarded by mutex_
};

// One look at many marks, in the order in which they were put: behind one that has not ended no other of its stream is
// asked.
class Look {
 public:
  bool HasEnded(const Mark& mark);

 private:
  std::array<CUstream, 16> busy_{};
  size_t num_busy_ = 0;
};

// Of an event, a program's own too; as Mark::State.
CUresult StateOfEvent(const DriverTable& driver, CUevent event);

}  // namespace tally::server
