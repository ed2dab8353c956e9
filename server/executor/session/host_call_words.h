// Words in pinned memory on which a stream waits until the client has run the stream's latest host function.
//
// The driver runs the host functions of all its streams on one thread. So ours only tell the client and return; the
// stream then waits (cuStreamWaitValue32) until its word reaches the number of the call, which the channel writes when
// the client acknowledges. A client that is slow, or stopped, holds up its own stream and nobody else's.
//
// A stream has a word from its first host function on. Guarded by the session's sequencer; the words themselves are
// written from any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

struct HostCallWord {
  std::atomic<uint32_t>* word = nullptr;  // number of the last host call that the client has finished; wraps around
  uint32_t num_calls = 0;                 // number of the last one put on the stream
};

class HostCallWords {
 public:
  explicit HostCallWords(const DriverTable& driver) : driver_(driver) {}
  ~HostCallWords() { FreeAll(); }
  HostCallWords(const HostCallWords&) = delete;
  HostCallWords& operator=(const HostCallWords&) = delete;

  // CUDA_ERROR_NOT_SUPPORTED: the driver cannot wait for words. A context must be current.
  CUresult Acquire(HostCallWord* word);
  // The stream is gone. A word that somebody may still wait for is not used again.
  void Release(const HostCallWord& word);
  bool empty() const { return pages_.empty(); }
  // Nothing on the device waits any more, and no callback will be acknowledged. A context must be current.
  void FreeAll();

 private:
  static constexpr uint32_t kWordsPerPage = 1024;
  static constexpr size_t kMaxPages = 256;

  const DriverTable& driver_;
  std::vector<std::atomic<uint32_t>*> pages_;
  uint32_t num_used_ = kWordsPerPage;  // of the last page
  std::vector<std::atomic<uint32_t>*> free_;
};

}  // namespace tally::server
