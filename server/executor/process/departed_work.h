// Sessions whose client is gone and whose work does not end: an endless kernel, or one that waits for what nobody does
// any more. Nothing but the end of the context ends those, and until then they keep the GPU from everybody they go
// before.
//
// Time counts only while the GPU could have run that work: high-priority work of others may keep it away for long. Not
// thread-safe; the caller looks once a second or so, and owns the clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tally::server {

class DepartedWork {
 public:
  // Zero: it may go on for ever.
  explicit DepartedWork(std::chrono::nanoseconds limit) : limit_(limit) {}

  // `draining`: ids of the sessions whose client is gone. One whose work has had the limit, if there is one.
  std::optional<uint64_t> Look(const std::vector<uint64_t>& draining, bool is_kept_away, TimePoint now) {
    const auto passed = is_kept_away || !last_look_ ? std::chrono::nanoseconds(0) : now - *last_look_;
    last_look_ = now;
    std::map<uint64_t, std::chrono::nanoseconds> still;
    for (const uint64_t id : draining) {
      const auto before = had_.find(id);
      still[id] = before == had_.end() ? std::chrono::nanoseconds(0) : before->second + passed;
    }
    had_ = std::move(still);
    for (const auto& [id, had] : had_) {
      if (limit_.count() != 0 && had >= limit_) return id;
    }
    return std::nullopt;
  }

 private:
  const std::chrono::nanoseconds limit_;
  std::optional<TimePoint> last_look_;
  std::map<uint64_t, std::chrono::nanoseconds> had_;  // since it was first seen draining
};

}  // namespace tally::server
