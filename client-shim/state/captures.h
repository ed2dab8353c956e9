// Stream captures in progress: which calls they forbid, and which of them a forbidden call has spoilt.
//
// The executor captures in relaxed mode always; the rules of cuThreadExchangeStreamCaptureMode are about the client's
// threads and are kept here. While no capture is open every question costs one relaxed load.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tally::client_shim {

class Captures {
 public:
  bool any() const { return num_open_.load(std::memory_order_relaxed) != 0; }

  void Begin(uint64_t origin_stream, bool is_blocking_stream, uint32_t context, CUstreamCaptureMode mode);
  // CUDA_SUCCESS, or CUDA_ERROR_STREAM_CAPTURE_INVALIDATED for a spoilt one, or ..._WRONG_THREAD. `*is_open` false: the
  // stream was not the origin of any capture.
  CUresult End(uint64_t origin_stream, bool* is_open);
  // Whether the calling thread may end the capture.
  CUresult CheckEnd(uint64_t origin_stream) const;
  bool IsSpoilt(uint64_t origin_stream) const;

  // For a call that is unsafe during a capture (allocations, queries of unrelated streams, ...): the error to return,
  // after spoiling the captures that forbid it.
  CUresult CheckUnsafe() { return any() ? CheckUnsafeSlowly() : CUDA_SUCCESS; }
  // For a synchronisation of a whole context: forbidden by every capture in it, whatever the mode.
  CUresult CheckSynchronizeContext(uint32_t context);
  // For work on the legacy stream: forbidden while a blocking stream of the context captures.
  CUresult CheckLegacyStream(uint32_t context);
  void Spoil(uint64_t origin_stream);
  // Those of a context; whether there are any.
  bool SpoilAll(uint32_t context);
  // Its stream, or everything in a context, is destroyed: nobody will end it.
  void Forget(uint64_t origin_stream);
  void ForgetContext(uint32_t context);

 private:
  struct Capture {
    uint64_t origin_stream;
    uint64_t thread;
    uint32_t context;
    bool is_blocking_stream;
    bool is_spoilt;
    CUstreamCaptureMode mode;
  };
  CUresult CheckUnsafeSlowly();
  // Whether there was any.
  template <typename Predicate>
  bool SpoilIf(const Predicate& is_forbidden);
  template <typename Predicate>
  void ForgetIf(const Predicate& is_gone);
  static bool IsOrigin(const Capture& capture, uint64_t stream);
  const Capture* FindLocked(uint64_t origin_stream) const;

  std::atomic<uint32_t> num_open_{0};
  mutable std::mutex mutex_;
  std::vector<Capture> open_;
};

}  // namespace tally::client_shim
