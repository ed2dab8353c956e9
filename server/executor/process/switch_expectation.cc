#include "server/executor/process/switch_expectation.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

// What is done from the moment on from which the kernel is expected, until it comes.
struct Holding {
  const char* name;
  microseconds every;  // a kernel of one thread goes ahead so often; zero: never
  microseconds each;   // so long it stays
  int at_once;         // so many queue from the start; zero: one after another, as `every` says
};
constexpr Holding kHoldings[] = {
    {"nothing", {}, {}, 0},
    {"a kernel of one thread, once", {}, {}, 1},
    {"the same, every 50 us", microseconds(50), {}, 0},
    {"the same, every 100 us", microseconds(100), {}, 0},
    {"the same, every 150 us", microseconds(150), {}, 0},
    {"every 100 us one that stays for 120 us", microseconds(100), microseconds(120), 0},
    {"every 50 us one that stays for 60 us", microseconds(50), microseconds(60), 0},
    {"16 that stay for 100 us queue", {}, microseconds(100), 16},
    {"64 that stay for 25 us queue", {}, microseconds(25), 64},
};
constexpr int kKernels = 60;

struct Range {
  microseconds from, to;
};
constexpr Range kRanges[] = {{microseconds(200), microseconds(300)},
                             {microseconds(250), microseconds(600)},
                             {microseconds(600), microseconds(1500)}};

SwitchLatency Measure(SwitchGpu& gpu, const Holding& holding, const Range& range) {
  std::vector<double> us;
  const auto ahead_ns = static_cast<uint64_t>(std::chrono::nanoseconds(holding.each).count());
  for (int i = 0; i < kKernels; ++i) {
    std::this_thread::sleep_for(microseconds(3000 + i * 37 % 1900));
    const auto begun = steady_clock::now();
    const auto comes = begun + range.from + microseconds(i * 53 % (range.to - range.from).count());
    for (int k = 0; k < holding.at_once; ++k) {
      if (!gpu.LaunchAhead(ahead_ns)) return {};
    }
    auto next = begun;
    while (steady_clock::now() < comes) {
      if (holding.every.count() == 0 || steady_clock::now() < next) continue;
      if (!gpu.LaunchAhead(ahead_ns)) return {};
      next += holding.every;
    }
    const auto since = steady_clock::now();
    if (!gpu.LaunchHalf(0) || !gpu.Await()) return {};
    us.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - since).count());
    if (!gpu.AwaitAhead()) return {};
  }
  return Summary(std::move(us));
}

}  // namespace

void PrintExpectations(SwitchGpu& gpu) {
  fmt::print("\na kernel that comes some time after it was expected (us, p50 / p99):\n{:<42}", "meanwhile");
  for (const Range& range : kRanges) {
    fmt::print(" {:>20}", fmt::format("{} to {} us", range.from.count(), range.to.count()));
  }
  for (const Holding& holding : kHoldings) {
    fmt::print("\n{:<42}", holding.name);
    for (const Range& range : kRanges) {
      const SwitchLatency latency = Measure(gpu, holding, range);
      fmt::print(" {:>20}", fmt::format("{:.0f} / {:.0f}", latency.p50_us, latency.p99_us));
      std::fflush(stdout);
    }
  }
  fmt::print("\n");
}

}  // namespace tally::server
