// YieldRequests: whether there is a best-effort launch in flight that could give the GPU back and was not yet asked to.
#pragma once

#include <cstdint>

#include "scheduler/launch_book.h"

namespace tally::scheduler {

class YieldRequests {
 public:
  void OnDispatched(LaunchBook::Launch& launch, bool may_be_asked) {
    launch.yield_round = may_be_asked ? round_ : 0;
    if (may_be_asked) ++num_to_ask_;
  }
  void OnEnded(const LaunchBook::Launch& launch) {
    if (launch.yield_round == round_) --num_to_ask_;
  }
  bool any_to_ask() const { return num_to_ask_ != 0; }
  // All of them were asked.
  void OnAsked() {
    num_to_ask_ = 0;
    ++round_;
  }

 private:
  uint64_t round_ = 1;  // launches dispatched in earlier rounds have been asked; 0: not to be asked
  uint32_t num_to_ask_ = 0;
};

}  // namespace tally::scheduler
