// What is simulated: tenants and the launches of their programs, read from a CSV file or made by a generator.
//
// The CSV format has a header line and a line per launch, in the order in which each tenant's program makes them:
//
//      time_us,tenant,class,level,weight,request,duration_us,fill,turnaround_us
//
//   time_us        when the program makes the launch, at the earliest
//   tenant         any name; class (high or best-effort), level and weight are those of its first line
//   request        a number: consecutive launches of a tenant with the same number are one request
//   duration_us    on the GPU alone
//   fill           the part of the GPU that it occupies, above 0, at most 1
//   turnaround_us  a variant exists that gives the GPU back within this time; 0: there is none
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "scheduler/launch.h"

namespace tally::scheduler_sim {

using scheduler::Nanoseconds;

struct TraceLaunch {
  Nanoseconds at{0};
  uint64_t request = 0;
  Nanoseconds duration{0};
  uint16_t fill = scheduler::kFillsGpu;
  Nanoseconds turnaround{0};  // 0: cannot yield
};

struct TraceTenant {
  std::string name;
  scheduler::TenantShare share;
  std::vector<TraceLaunch> launches;
  bool repeats = false;  // begins anew when it is through, without end
};

struct Trace {
  std::vector<TraceTenant> tenants;
};

Result<Trace> ReadTrace(const std::string& path);
Status WriteTrace(const Trace& trace, const std::string& path);

struct GeneratorOptions {
  int num_tenants = 1000;
  int num_high_priority = 10;
  double load = 0.3;       // part of the GPU's time that high-priority requests need, alone
  double yieldable = 1.0;  // part of the best-effort kernels longer than the turnaround threshold that have a variant
  double seconds = 10;
  uint64_t seed = 1;
};

// High-priority services: requests of 5 to 20 kernels of 10 to 80 us, some microseconds apart, that arrive in bursts:
// the rate changes between 0.25 and 1.75 of its mean after periods of 50 ms on average. Best-effort trainings: steps of
// 64 kernels of 5 us to 1 ms (evenly spread over the orders of magnitude) without end, half of the tenants fill the
// GPU, the others 5 to 60 % of it; weights 50, 100, 200, 400.
Trace GenerateTrace(const GeneratorOptions& options);

}  // namespace tally::scheduler_sim
