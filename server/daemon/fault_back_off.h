// How long an owner of domains whose executors fail one after another waits for the next one.
//
// A fault ends an executor at no cost to whoever caused it, and the next one costs a process and a context. One fault
// is an accident: the next executor starts at once. Not thread-safe; the caller owns the clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"

namespace tally::server {

class FaultBackOff {
 public:
  static constexpr std::chrono::seconds kFirstPause{1};  // after the second one; doubled by each that follows
  static constexpr std::chrono::seconds kLongestPause{16};
  static constexpr std::chrono::seconds kForgottenAfter{60};

  void OnFault(const std::string& owner, TimePoint now) {
    std::erase_if(faults_, [&](const auto& each) { return now - each.second.last >= kForgottenAfter; });
    Faults& faults = faults_[owner];
    faults.last = now;
    ++faults.in_a_row;
  }

  int InARow(const std::string& owner) const {
    const auto found = faults_.find(owner);
    return found == faults_.end() ? 0 : found->second.in_a_row;
  }

  // Zero: it may start now.
  std::chrono::nanoseconds PauseOf(const std::string& owner, TimePoint now) const {
    const auto found = faults_.find(owner);
    if (found == faults_.end() || found->second.in_a_row < 2) return {};
    const int doublings = std::min(found->second.in_a_row - 2, 10);
    const auto pause = std::min(kFirstPause * (1 << doublings), kLongestPause);
    return std::max<std::chrono::nanoseconds>(found->second.last + pause - now, std::chrono::nanoseconds(0));
  }

 private:
  struct Faults {
    TimePoint last{};
    int in_a_row = 0;
  };
  std::map<std::string, Faults> faults_;  // by owner; those of the last minute
};

}  // namespace tally::server
