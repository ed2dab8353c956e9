// What counting a session's time on the GPU costs a launch: within a stretch of work, and at its ends.
#include <benchmark/benchmark.h>

#include "server/executor/dispatch/busy_clock.h"

namespace tally::server {
namespace {

// What the others are compared with.
void BM_LaunchThatIsNotCounted(benchmark::State& state) {
  const SteadyClock clock;
  BusyTime busy(1, clock);
  const auto stream = std::make_shared<StreamWork>(busy.On(0));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(stream.get());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_LaunchThatIsNotCounted);

void BM_LaunchWithinAStretch(benchmark::State& state) {
  const SteadyClock clock;
  BusyTime busy(1, clock);
  const auto stream = std::make_shared<StreamWork>(busy.On(0));
  for ([[maybe_unused]] auto _ : state) {
    stream->clock().OnWork(stream);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_LaunchWithinAStretch);

// The launch that begins a stretch and the wait that ends it.
void BM_LaunchAndWait(benchmark::State& state) {
  const SteadyClock clock;
  BusyTime busy(1, clock);
  const auto stream = std::make_shared<StreamWork>(busy.On(0));
  for ([[maybe_unused]] auto _ : state) {
    stream->clock().OnWork(stream);
    stream->OnSeen(stream->num_put(), clock.Now());
  }
}
BENCHMARK(BM_LaunchAndWait);

// Of a scrape.
void BM_Measure(benchmark::State& state) {
  const SteadyClock clock;
  BusyTime busy(1, clock);
  const auto stream = std::make_shared<StreamWork>(busy.On(0));
  stream->clock().OnWork(stream);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(busy.On(0).Measure(false));
}
BENCHMARK(BM_Measure);

}  // namespace
}  // namespace tally::server
