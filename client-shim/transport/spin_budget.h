// How long a waiter spins before it sleeps. Spinning saves a wake-up (5 to 10 us) when the answer comes at once, and
// wastes a core when it does not: the budget grows with success and shrinks with failure, and is tiny on a machine
// whose few cores the other side needs.
#pragma once

#include <algorithm>
#include <chrono>

namespace tally::client_shim {

class SpinBudget {
 public:
  explicit SpinBudget(unsigned num_cpus = 1)
      : most_(num_cpus >= 4 ? std::chrono::microseconds(50) : std::chrono::microseconds(3)),
        least_(num_cpus >= 4 ? std::chrono::microseconds(4) : std::chrono::microseconds(0)),
        budget_(most_) {}

  std::chrono::nanoseconds budget() const { return budget_; }
  void OnSuccess() { budget_ = std::min(most_, budget_ * 2 + std::chrono::nanoseconds(500)); }
  void OnFailure() { budget_ = std::max(least_, budget_ / 2); }

 private:
  std::chrono::nanoseconds most_;
  std::chrono::nanoseconds least_;
  std::chrono::nanoseconds budget_;
};

}  // namespace tally::client_shim
