// What a policy's decisions cost on this machine: processor time and memory, nothing simulated but the tenants.
#pragma once

#include <chrono>
#include <cstdint>

#include "bench/scheduler-sim/trace.h"
#include "scheduler/policy_list.h"

namespace tally::scheduler_sim {

struct DecisionCost {
  double decisions_per_second = 0;
  double bytes_per_tenant = 0;   // of the policy's own memory, with a launch waiting of each
  double bytes_fixed = 0;        // of a policy without tenants
  uint64_t num_allocations = 0;  // while the time was taken
};

// Every tenant of the trace has a launch waiting at all times. One decision counts with all that belongs to it: the
// submission of the next launch, Next, and the report of an end. High-priority tenants launch in bursts between which
// they are absent. Takes about `duration`.
DecisionCost MeasureDecisions(const Trace& trace, const scheduler::PolicyRow& policy,
                              const scheduler::PolicyConfig& config, std::chrono::milliseconds duration);

}  // namespace tally::scheduler_sim
