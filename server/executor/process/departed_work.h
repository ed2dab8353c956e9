// Sessions whose client is gone and whose work does not end: an endless kernel, or one that waits for what nobody does
// any more. Nothing but the end of the context ends those, and until then they keep the GPU from everybody they go
// before.
//
// Time counts only while the GPU could have run that work: high-priority work of others may keep it away for long. What
// keeps another GPU of the program busy is no excuse. Not thread-safe; the caller looks once a second or so, and owns
// the clock.
#pragma once

#include <algorithm>
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

  // A session whose client is gone.
  struct Draining {
    uint64_t id = 0;
    std::vector<std::chrono::nanoseconds> busy;  // so far, by device
  };
  // `is_taken`: by device, whether high-priority work of others has it. One whose work has had the limit, if there is
  // one.
  std::optional<uint64_t> Look(const std::vector<Draining>& draining, const std::vector<bool>& is_taken,
                               TimePoint now) {
    const auto passed = last_look_ ? now - *last_look_ : std::chrono::nanoseconds(0);
    last_look_ = now;
    std::map<uint64_t, Seen> still;
    for (const Draining& session : draining) {
      const auto before = had_.find(session.id);
      Seen& seen = still[session.id] = {{}, session.busy};
      if (before == had_.end()) continue;
      const bool is_kept_away = IsKeptAway(before->second.busy, session.busy, is_taken);
      seen.had = before->second.had + (is_kept_away ? std::chrono::nanoseconds(0) : passed);
    }
    had_ = std::move(still);
    for (const auto& [id, seen] : had_) {
      if (limit_.count() != 0 && seen.had >= limit_) return id;
    }
    return std::nullopt;
  }

  // Of those of the last look, what the longest has had.
  std::chrono::nanoseconds longest() const {
    std::chrono::nanoseconds most{0};
    for (const auto& [id, seen] : had_) most = std::max(most, seen.had);
    return most;
  }

 private:
  struct Seen {
    std::chrono::nanoseconds had{0};  // since it was first seen draining
    std::vector<std::chrono::nanoseconds> busy;
  };

  // On a device where it has work. Where it has none it may be that its work is held back: any device counts then.
  static bool IsKeptAway(const std::vector<std::chrono::nanoseconds>& before,
                         const std::vector<std::chrono::nanoseconds>& now, const std::vector<bool>& is_taken) {
    const auto has_work = [&](size_t device) {
      return device < now.size() && device < before.size() && now[device] > before[device];
    };
    bool has_any_work = false, is_any_taken = false;
    for (size_t device = 0; device < is_taken.size(); ++device) {
      if (is_taken[device] && has_work(device)) return true;
      has_any_work |= has_work(device);
      is_any_taken |= is_taken[device];
    }
    return !has_any_work && is_any_taken;
  }

  const std::chrono::nanoseconds limit_;
  std::optional<TimePoint> last_look_;
  std::map<uint64_t, Seen> had_;
};

}  // namespace tally::server
