// What choosing the form of a launch costs when nothing changes: the price that every best-effort launch pays.
#include <benchmark/benchmark.h>

#include "server/executor/issue/kernel_profile.h"

namespace tally::server {
namespace {

constexpr std::chrono::nanoseconds kThreshold{31'600};

void PlanOfASettledKernel(benchmark::State& state) {
  KernelProfile profile("kernel", {}, "");
  const auto num_shapes = static_cast<uint32_t>(state.range(0));
  LaunchShape shape{{1, 1, 1}, {128, 1, 1}, 0};
  for (uint32_t i = 1; i <= num_shapes; ++i) {
    shape.grid[0] = i;
    for (int sample = 0; sample < 3; ++sample) profile.OnDuration(shape, {}, std::chrono::microseconds(10));
  }
  uint32_t next = 0;
  for (auto _ : state) {
    shape.grid[0] = 1 + next++ % num_shapes;
    benchmark::DoNotOptimize(profile.PlanLaunch(shape, kThreshold));
  }
}
BENCHMARK(PlanOfASettledKernel)->Arg(1)->Arg(8)->Arg(256);

}  // namespace
}  // namespace tally::server
