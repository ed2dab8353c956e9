// Who has executors record: one at a time, and the administrator before users. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/status.h"

namespace tally::server {

class TraceTurns {
 public:
  // OK: it is the caller's turn until Leave. kAlreadyExists: somebody records whom the caller does not go before. For
  // the administrator a user's recording is ended: `end_running` is called, again and again because it may come before
  // the recording has begun, until that one has left or `limit` is over. Any number of callers.
  Status Enter(bool is_administrator, std::chrono::milliseconds limit, const std::function<void()>& end_running);
  // True: the administrator has ended it.
  bool Leave();

 private:
  enum class Who { kNobody, kUser, kAdministrator };

  std::mutex mutex_;
  std::condition_variable left_;
  Who recording_ = Who::kNobody;  // guarded by mutex_, as all below
  int num_waiting_ = 0;           // administrators
  bool is_cut_short_ = false;
};

}  // namespace tally::server
