// What cuCtxGetLimit answered last, of one context: libraries ask before launches, and each question would wait until
// the executor has come to it behind all launches so far. (PyTorch: 48 times a step of GPT-2 small.)
//
// Limits change by cuCtxSetLimit only. Whoever asks while another thread sets one keeps nothing. Thread-safe.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

namespace tally::client_shim {

class ContextLimits {
 public:
  // To be read before the executor is asked, and given with its answer.
  uint64_t num_changes() const {
    const std::lock_guard lock(mutex_);
    return num_changes_;
  }
  std::optional<size_t> Find(CUlimit limit) const {
    const std::lock_guard lock(mutex_);
    return IsKnown(limit) ? known_[limit] : std::nullopt;
  }
  void Keep(CUlimit limit, size_t value, uint64_t num_changes_before) {
    const std::lock_guard lock(mutex_);
    if (IsKnown(limit) && num_changes_ == num_changes_before) known_[limit] = value;
  }
  // One of them has changed, or it is another context from now on: setting one may change others.
  void Forget() {
    const std::lock_guard lock(mutex_);
    known_.fill(std::nullopt);
    ++num_changes_;
  }

 private:
  static bool IsKnown(CUlimit limit) { return limit >= 0 && limit < CU_LIMIT_MAX; }
  mutable std::mutex mutex_;
  std::array<std::optional<size_t>, CU_LIMIT_MAX> known_{};
  uint64_t num_changes_ = 0;
};

}  // namespace tally::client_shim
