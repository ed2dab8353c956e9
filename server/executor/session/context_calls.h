// Calls of all sessions that the driver may keep waiting for everything in the context, and since when.
//
// Who does not run a host function keeps them waiting with its stream: executor.cc ends its session. Thread-safe.
#pragma once

#include <algorithm>
#include <list>
#include <mutex>

#include "base/clock.h"

namespace tally::server {

class ContextCalls {
 public:
  // One call, from here to its end. `session` is only compared.
  class Call {
   public:
    Call(ContextCalls& all, const void* session) : all_(all) {
      const std::lock_guard lock(all_.mutex_);
      place_ = all_.calls_.insert(all_.calls_.end(), {session, all_.clock_.Now()});
    }
    ~Call() {
      const std::lock_guard lock(all_.mutex_);
      all_.calls_.erase(place_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class ContextCalls;
    ContextCalls& all_;
    std::list<std::pair<const void*, TimePoint>>::iterator place_;
  };

  // Whether a call of any other session has been waiting since `since` or longer.
  bool HasOther(const void* session, TimePoint since) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(calls_.begin(), calls_.end(),
                       [&](const auto& call) { return call.first != session && call.second <= since; });
  }

 private:
  const SteadyClock clock_;
  mutable std::mutex mutex_;
  std::list<std::pair<const void*, TimePoint>> calls_;
};

}  // namespace tally::server
