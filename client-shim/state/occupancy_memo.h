// Answers of occupancy queries already asked: libraries ask the same ones before every launch. Forgotten when a
// kernel's attributes change. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

namespace tally::client_shim {

class OccupancyMemo {
 public:
  using Key = std::tuple<uint64_t /*kernel*/, int /*device*/, int /*block size*/, uint64_t /*shared bytes*/,
                         uint32_t /*flags*/>;

  std::optional<int> Find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = answers_.find(key);
    return found != answers_.end() ? std::optional(found->second) : std::nullopt;
  }
  void Keep(const Key& key, int answer) {
    const std::lock_guard lock(mutex_);
    if (answers_.size() >= kMostAnswers) answers_.clear();
    answers_[key] = answer;
  }
  void Forget() {
    const std::lock_guard lock(mutex_);
    answers_.clear();
  }

 private:
  static constexpr size_t kMostAnswers = 16384;
  mutable std::mutex mutex_;
  std::map<Key, int> answers_;
};

}  // namespace tally::client_shim
