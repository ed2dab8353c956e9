// One policy on one trace, on the model of a GPU (tests/scheduler/gpu_model.h). Everything that comes out is simulated.
//
// A tenant's program makes its launches in order, each at its time or when the one before it was dispatched, as the
// thread of an executor that serves it; with `depth` of them in flight it waits. Policies are told the true durations
// (an executor knows them after a few launches). Kernels that have a variant run in it, a little slower, where the
// policy uses variants. Handing over a launch, seeing its end and deciding take no simulated time.
#pragma once

#include <string>

#include "bench/scheduler-sim/trace.h"
#include "scheduler/policy_list.h"

namespace tally::scheduler_sim {

struct SimulationOptions {
  Nanoseconds end = std::chrono::seconds(10);
  int depth = 8;
  double variant_cost = 1.05;  // how much longer a kernel takes in its variant
  scheduler::PolicyConfig policy;
};

struct SimulationResult {
  uint64_t num_requests = 0;  // of high-priority tenants; those not done at the end count with their age
  uint64_t num_unfinished = 0;
  Nanoseconds p50{0};
  Nanoseconds p99{0};
  Nanoseconds longest{0};
  double high_priority_share = 0;  // GPU time by the length of the run
  double best_effort_share = 0;
  double fairness = 1;  // Jain's index of best-effort GPU time over weight: 1 is fair, 1/n is one tenant has all
  uint64_t num_dispatches = 0;
  uint64_t num_yields = 0;  // launches that yielded
  double wall_seconds = 0;  // of the machine that simulates
};

SimulationResult Simulate(const Trace& trace, const scheduler::PolicyRow& policy, const SimulationOptions& options);

}  // namespace tally::scheduler_sim
