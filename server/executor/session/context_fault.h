// Whether the executor's contexts are of no use any more.
//
// Thread-safe, once it is known who is to be told.
#pragma once

#include <cuda.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>

namespace tally::server {

class ContextFault {
 public:
  using OnLost = std::function<void(CUresult error, const std::string& what)>;

  // Once, before the first session.
  void Tell(OnLost on_lost) { on_lost_ = std::move(on_lost); }
  // The sticky error, CUDA_SUCCESS while all is well.
  CUresult error() const { return static_cast<CUresult>(error_.load(std::memory_order_acquire)); }
  // The first one counts: it is told on the caller's thread.
  void Report(CUresult error, const std::string& what) {
    int none = CUDA_SUCCESS;
    if (error_.compare_exchange_strong(none, static_cast<int>(error)) && on_lost_) on_lost_(error, what);
  }

 private:
  OnLost on_lost_;
  std::atomic<int> error_{CUDA_SUCCESS};
};

}  // namespace tally::server
