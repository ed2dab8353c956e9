// What a link state owns in the client: the caller's log buffers, given at creation and written by every later step,
// and the linked image. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "client-shim/state/images_upload.h"

namespace tally::client_shim {

class LinkResults {
 public:
  void KeepLogs(uint64_t link, const JitOptions& options) {
    const std::lock_guard lock(mutex_);
    links_[link].logs = options;
  }
  // Valid until Forget.
  const JitOptions& Logs(uint64_t link) {
    const std::lock_guard lock(mutex_);
    return links_[link].logs;
  }
  std::span<std::byte> KeepResult(uint64_t link, std::vector<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    return links_[link].result = std::move(bytes);
  }
  void Forget(uint64_t link) {
    const std::lock_guard lock(mutex_);
    links_.erase(link);
  }

 private:
  struct Link {
    JitOptions logs;
    std::vector<std::byte> result;
  };
  std::mutex mutex_;
  std::map<uint64_t, Link> links_;
};

}  // namespace tally::client_shim
