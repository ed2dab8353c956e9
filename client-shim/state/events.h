// What the client keeps about an event: when and where it was recorded, so that most questions about it can be answered
// here (completion.h).
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace tally::client_shim {

// Where a recording stands. `sequence_number_plus_1` 0: not known here.
struct Recording {
  uint64_t sequence_number_plus_1 = 0;
  uint64_t stream = 0;   // resolved word
  uint32_t context = 0;  // of the stream
  uint32_t epoch = 0;    // of the context
};

struct Event {
  uint64_t handle = 0;
  uint32_t context = 0;
  uint32_t flags = 0;  // CUevent_flags

  // Other programs may use it too, and record it.
  bool is_interprocess() const { return (flags & CU_EVENT_INTERPROCESS) != 0; }

  // Others than the program's own calls may record it (a graph, a launch attribute): always ask.
  void StopTracking() {
    is_tracked_.store(false, std::memory_order_relaxed);
    ForgetRecording();
  }
  // Before it is recorded anew.
  void ForgetRecording() { sequence_number_plus_1_.store(0, std::memory_order_seq_cst); }
  void NoteRecording(const Recording& recording) {
    if (is_interprocess() || !is_tracked_.load(std::memory_order_relaxed)) return;
    stream_.store(recording.stream, std::memory_order_relaxed);
    context_of_stream_.store(recording.context, std::memory_order_relaxed);
    epoch_.store(recording.epoch, std::memory_order_relaxed);
    sequence_number_plus_1_.store(recording.sequence_number_plus_1, std::memory_order_release);
  }
  // Nothing known if another thread is recording it right now.
  Recording LatestRecording() const {
    Recording recording;
    recording.sequence_number_plus_1 = sequence_number_plus_1_.load(std::memory_order_acquire);
    recording.stream = stream_.load(std::memory_order_relaxed);
    recording.context = context_of_stream_.load(std::memory_order_relaxed);
    recording.epoch = epoch_.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (sequence_number_plus_1_.load(std::memory_order_relaxed) != recording.sequence_number_plus_1)
      recording.sequence_number_plus_1 = 0;
    return recording;
  }
  // The executor said that this recording has happened.
  void NoteComplete(const Recording& recording) {
    if (recording.sequence_number_plus_1 != 0)
      complete_plus_1_.store(recording.sequence_number_plus_1, std::memory_order_relaxed);
  }
  bool WasFoundComplete(const Recording& recording) const {
    return complete_plus_1_.load(std::memory_order_relaxed) == recording.sequence_number_plus_1;
  }

 private:
  std::atomic<bool> is_tracked_{true};
  std::atomic<uint64_t> sequence_number_plus_1_{0};
  std::atomic<uint64_t> stream_{0};
  std::atomic<uint32_t> context_of_stream_{0};
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint64_t> complete_plus_1_{0};
};

}  // namespace tally::client_shim
