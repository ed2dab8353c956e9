// Live-object registry: turns CUDA handles into objects and refuses every value that is not alive.
//
// A handle is a number that is never used twice in a process and that lies in no mapped page, so a stale or invented
// handle is always noticed, never followed. Thread-safe. The table and each caller of Find() share ownership.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "sim-driver/api/live_objects.h"

namespace tally::sim_driver {

// Every table draws from one sequence, so a handle of one kind is never valid as another kind.
inline uint64_t NextHandleValue() {
  // Non-canonical on x86-64: following one faults at once. A multiple of 16, and never 0, 1 or 2 (special streams).
  static constexpr uint64_t kFirst = 0x7a11'0000'0000'0010;
  static std::atomic<uint64_t> next{kFirst};
  return next.fetch_add(16, std::memory_order_relaxed);
}

template <typename Handle, typename Object>
class HandleTable {
 public:
  // `kind` names what is in it (live_objects.h). The table lives for ever.
  explicit HandleTable(const char* kind) {
    RegisterLive(kind, [this] { return size(); });
  }
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  size_t size() const {
    size_t num_live = 0;
    for (const Shard& shard : shards_) {
      std::shared_lock lock(shard.mutex);
      num_live += shard.live.size();
    }
    return num_live;
  }
  // Makes `object` findable and returns its new handle.
  Handle Insert(std::shared_ptr<Object> object) {
    const uint64_t value = NextHandleValue();
    InsertAt(value, std::move(object));
    return reinterpret_cast<Handle>(value);
  }
  // As Insert(), for an object that must know its handle first: take the value from NextHandleValue().
  void InsertAt(uint64_t value, std::shared_ptr<Object> object) {
    Shard& shard = ShardOf(value);
    std::unique_lock lock(shard.mutex);
    shard.live.emplace(value, std::move(object));
  }
  // Null when the handle is not alive.
  std::shared_ptr<Object> Find(Handle handle) const {
    const auto value = reinterpret_cast<uint64_t>(handle);
    const Shard& shard = ShardOf(value);
    std::shared_lock lock(shard.mutex);
    const auto found = shard.live.find(value);
    return found == shard.live.end() ? nullptr : found->second;
  }
  // Null when it was not alive; so of two concurrent destroyers one wins.
  std::shared_ptr<Object> Remove(Handle handle) {
    const auto value = reinterpret_cast<uint64_t>(handle);
    Shard& shard = ShardOf(value);
    std::unique_lock lock(shard.mutex);
    const auto found = shard.live.find(value);
    if (found == shard.live.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    shard.live.erase(found);
    return object;
  }
  // Any object that `condition` holds for, or null. Looks at all of them.
  template <typename Condition>
  std::shared_ptr<Object> FindIf(Condition condition) const {
    for (const Shard& shard : shards_) {
      std::shared_lock lock(shard.mutex);
      for (const auto& [value, object] : shard.live) {
        if (condition(*object)) return object;
      }
    }
    return nullptr;
  }
  // Removes and returns everything that `condition` holds for.
  template <typename Condition>
  std::vector<std::shared_ptr<Object>> RemoveIf(Condition condition) {
    std::vector<std::shared_ptr<Object>> removed;
    for (Shard& shard : shards_) {
      std::unique_lock lock(shard.mutex);
      for (auto it = shard.live.begin(); it != shard.live.end();) {
        if (condition(*it->second)) {
          removed.push_back(std::move(it->second));
          it = shard.live.erase(it);
        } else {
          ++it;
        }
      }
    }
    return removed;
  }

 private:
  struct Shard {
    mutable std::shared_mutex mutex;
    std::unordered_map<uint64_t, std::shared_ptr<Object>> live;
  };
  static constexpr size_t kNumShards = 8;
  Shard& ShardOf(uint64_t value) { return shards_[(value >> 4) % kNumShards]; }
  const Shard& ShardOf(uint64_t value) const { return shards_[(value >> 4) % kNumShards]; }

  std::array<Shard, kNumShards> shards_;
};

}  // namespace tally::sim_driver
