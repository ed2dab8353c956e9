// What a link state owns in the client: the caller's log buffers, given at creation and written by every later step,
// and the linked image. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "client-shim/origins/ptx_origins.h"
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
  // What goes into the link, when it is added: PTX text, or null for anything else.
  void NoteInput(uint64_t link, PtxText ptx) {
    const std::lock_guard lock(mutex_);
    Link& noted = links_[link];
    noted.only_input = noted.num_inputs++ == 0 ? std::move(ptx) : nullptr;
  }
  // The text that is all there is in the link; null if there is more, or something else.
  PtxText OnlyInput(uint64_t link) {
    const std::lock_guard lock(mutex_);
    return links_[link].only_input;
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
    PtxText only_input;
    uint64_t num_inputs = 0;
  };
  std::mutex mutex_;
  std::map<uint64_t, Link> links_;
};

}  // namespace tally::client_shim
