// Driver objects (events, real streams) that a lane waits for without having the turn: their destruction is put off
// until it has done. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace tally::server {

class AwaitedObjects {
 public:
  void Begin(const void* object) {
    const std::lock_guard lock(mutex_);
    ++awaited_[object].count;
  }
  // Returns true if the object was to be destroyed meanwhile: the caller does it now.
  [[nodiscard]] bool End(const void* object) {
    const std::lock_guard lock(mutex_);
    const auto found = awaited_.find(object);
    if (--found->second.count != 0) return false;
    const bool destroy = found->second.destroy;
    awaited_.erase(found);
    return destroy;
  }
  // True if somebody waits for it: it will be destroyed later, the caller must not.
  [[nodiscard]] bool PutOffDestruction(const void* object) {
    const std::lock_guard lock(mutex_);
    const auto found = awaited_.find(object);
    if (found == awaited_.end()) return false;
    found->second.destroy = true;
    return true;
  }

 private:
  struct Waiters {
    uint32_t count = 0;
    bool destroy = false;
  };
  std::mutex mutex_;
  std::map<const void*, Waiters> awaited_;
};

}  // namespace tally::server
