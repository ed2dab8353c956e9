// What an executor knows about one kernel of best-effort programs, for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "scheduler/variant_choice.h"
#include "server/executor/dispatch/launch_shape.h"

namespace tally::server {

// One shape of one kernel, for people.
struct KernelReport {
  std::string kernel;
  LaunchShape shape;
  uint64_t num_launches = 0;
  std::chrono::nanoseconds gpu_time{0};  // launches times measured duration: an estimate
  scheduler::VariantChoice::Measured chosen;
  std::chrono::nanoseconds original_duration{0};
  std::string remark;  // why there is no variant, or that one is being made; empty: nothing to say
};

}  // namespace tally::server
