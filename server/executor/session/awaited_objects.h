// Driver objects (events, real streams) that a channel waits for without holding the sequencer: their destruction is
// put off until it has done. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tally::server {

class AwaitedObjects {
 public:
  void Begin(const void* object) {
    const std::lock_guard lock(mutex_);
    const auto found = FindLocked(object);
    if (found != awaited_.end()) {
      ++found->count;
    } else {
      awaited_.push_back({object, 1, false});
    }
  }
  // Returns true if the object was to be destroyed meanwhile: the caller does it now.
  [[nodiscard]] bool End(const void* object) {
    const std::lock_guard lock(mutex_);
    const auto found = FindLocked(object);
    if (--found->count != 0) return false;
    const bool destroy = found->destroy;
    *found = awaited_.back();
    awaited_.pop_back();
    return destroy;
  }
  // True if somebody waits for it: it will be destroyed later, the caller must not.
  [[nodiscard]] bool PutOffDestruction(const void* object) {
    const std::lock_guard lock(mutex_);
    const auto found = FindLocked(object);
    if (found == awaited_.end()) return false;
    found->destroy = true;
    return true;
  }

 private:
  struct Awaited {
    const void* object;
    uint32_t count;
    bool destroy;
  };
  std::vector<Awaited>::iterator FindLocked(const void* object) {
    return std::find_if(awaited_.begin(), awaited_.end(), [&](const Awaited& a) { return a.object == object; });
  }

  std::mutex mutex_;
  std::vector<Awaited> awaited_;  // at most a few: each channel waits for one at a time
};

}  // namespace tally::server
