// Functions of the client whose turn has come: host functions, and destructors of user objects.
//
// The driver calls us on a thread of its own, one for all streams of all sessions, when a stream reaches a host
// function. Post only tells the client and returns; the stream itself waits for a word in memory (host_call_words.h).
// Host nodes of graphs have no such word: there the driver's thread waits until the client has run them. The client's
// callback thread fetches tokens with Op::kAwaitCallback and acknowledges each with the next one. One that does not
// loses its session (Session::RequireHostFunctions), which closes the queue.
//
// Thread-safe; shared by the session and its host calls, whichever lives longer.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace tally::server {

class CallbackQueue {
 public:
  struct Entry {
    uint64_t token = 0;
    CUresult stream_status = CUDA_SUCCESS;
    std::atomic<uint32_t>* word = nullptr;  // gets `number` when the client has run it
    uint32_t number = 0;
    bool done = false;
  };

  // `clock` outlives this.
  explicit CallbackQueue(const Clock& clock) : clock_(clock) {}

  // On the driver's thread. Never waits.
  void Post(uint64_t token, CUresult stream_status, std::atomic<uint32_t>* word, uint32_t number);
  // On the driver's thread: returns when the client has run it or the queue is closed.
  void RunInClient(uint64_t token, CUresult stream_status);
  // On a channel's thread: the next one to run; null once closed or `stop` is set (after WakeAll).
  std::shared_ptr<Entry> Next(const std::atomic<bool>& stop);
  void Finish(const std::shared_ptr<Entry>& entry);
  // Since when the client has something to run and has finished nothing.
  std::optional<TimePoint> WaitsSince();
  // Releases every waiting stream and host function unrun, now and from now on.
  void Close();
  void WakeAll();

 private:
  std::shared_ptr<Entry> AddLocked(uint64_t token, CUresult stream_status, std::atomic<uint32_t>* word,
                                   uint32_t number);
  static void Release(const Entry& entry);

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable finished_;
  std::deque<std::shared_ptr<Entry>> waiting_;
  std::vector<std::shared_ptr<Entry>> running_;  // given to the client, not acknowledged
  std::optional<TimePoint> waits_since_;
  bool closed_ = false;
};

// What the driver gets as a host function's argument. Kept by whoever can still cause a call: freed by itself after the
// only call, or by the session at its end when a graph may call it again.
struct HostCall {
  std::shared_ptr<CallbackQueue> queue;
  uint64_t token = 0;
  bool is_repeatable = false;
  std::atomic<uint32_t>* word = nullptr;  // null: the driver's thread waits
  uint32_t number = 0;
};

// For cuLaunchHostFunc and graph host nodes; `argument` is a HostCall.
void CUDA_CB RunHostFunction(void* argument);
// For cuStreamAddCallback.
void CUDA_CB RunStreamCallback(CUstream stream, CUresult status, void* argument);

}  // namespace tally::server
