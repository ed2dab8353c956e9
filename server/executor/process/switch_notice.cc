#include "server/executor/process/switch_notice.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "server/executor/process/switch_partner.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What is done some time before a kernel comes, so that the switch is over by then.
struct Notice {
  const char* name;
  bool deschedules;                                      // best-effort work
  enum class Ahead { kNothing, kKernel, kSpins } ahead;  // a kernel of one thread: ends at once, or stays until then
};
constexpr Notice kNotices[] = {
    {"best-effort work is descheduled", true, Notice::Ahead::kNothing},
    {"it is descheduled, and a kernel of one thread goes ahead", true, Notice::Ahead::kKernel},
    {"a kernel of one thread goes ahead", false, Notice::Ahead::kKernel},
    {"a kernel of one thread goes ahead and stays", false, Notice::Ahead::kSpins},
};
constexpr int kNoticedRequests = 100;
constexpr uint64_t kStaysOnNs = 100'000;

// `commands` and `answers`: of the best-effort process, which works with short slices.
SwitchLatency MeasureNotice(SwitchGpu& gpu, const Notice& notice, microseconds before, int commands, int answers) {
  std::vector<double> us;
  for (int i = 0; i < kNoticedRequests; ++i) {
    std::this_thread::sleep_for(microseconds(2000 + i * 37 % 1900));
    const auto noticed = steady_clock::now();
    char answer = kReady;
    if (notice.deschedules && !Tell(commands, kDeschedule)) return {};
    const auto duration_ns = static_cast<uint64_t>(before.count()) * 1000 + kStaysOnNs;
    if (notice.ahead != Notice::Ahead::kNothing &&
        !gpu.LaunchAhead(notice.ahead == Notice::Ahead::kSpins ? duration_ns : 0)) {
      return {};
    }
    while (steady_clock::now() - noticed < before) {
    }
    const auto since = steady_clock::now();
    if (!gpu.LaunchHalf(0) || !gpu.Await()) return {};
    us.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - since).count());
    if (!notice.deschedules) continue;
    if (!Hear(answers, &answer, milliseconds(20'000)) || answer != kReady) return {};
    if (!Tell(commands, kGoOn) || !Hear(answers, &answer, milliseconds(20'000)) || answer != kReady) return {};
  }
  return Summary(std::move(us));
}

constexpr microseconds kRunsSince{600}, kRunsOn{300};
constexpr int kBursts = 20;
constexpr int kKernelsOfBurst = 10;
constexpr microseconds kBurstKernel{100}, kBurstGap{60};

}  // namespace

SwitchLatency MeasureBesideOneThatRuns(SwitchGpu& gpu, bool is_same_stream) {
  std::vector<double> us;
  for (int i = 0; i < kNoticedRequests; ++i) {
    std::this_thread::sleep_for(microseconds(2000 + i * 37 % 1900));
    const auto begun = steady_clock::now();
    if (!gpu.LaunchAhead(std::chrono::nanoseconds(kRunsSince + kRunsOn).count())) return {};
    while (steady_clock::now() - begun < kRunsSince) {
    }
    const auto since = steady_clock::now();
    if (!(is_same_stream ? gpu.LaunchAhead(0) && gpu.AwaitAhead() : gpu.LaunchHalf(0) && gpu.Await())) return {};
    us.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - since).count());
    if (!gpu.AwaitAhead()) return {};
  }
  return Summary(std::move(us));
}

SwitchLatency MeasureBursts(SwitchGpu& gpu, int num_staying) {
  std::vector<double> us;
  for (int burst = 0; burst < kBursts; ++burst) {
    std::this_thread::sleep_for(milliseconds(3));
    const std::chrono::nanoseconds all = kKernelsOfBurst * (kBurstKernel + kBurstGap);
    for (int i = 0; i < num_staying; ++i) {
      if (!gpu.LaunchAhead(all.count() / num_staying)) return {};
    }
    for (int i = 0; i < kKernelsOfBurst; ++i) {
      const auto since = steady_clock::now();
      if (!gpu.LaunchHalf(std::chrono::nanoseconds(kBurstKernel).count()) || !gpu.Await()) return {};
      const auto now = steady_clock::now();
      if (i > 0) us.push_back(std::chrono::duration<double, std::micro>(now - since).count());
      while (steady_clock::now() - now < kBurstGap) {
      }
    }
    if (!gpu.AwaitAhead()) return {};
  }
  return Summary(std::move(us));
}

void PrintNotices(SwitchGpu& gpu, int commands, int answers) {
  fmt::print("\na kernel, if something is done some time before it comes (us, p50 / p99):\n{:<56}", "");
  constexpr microseconds kBefore[] = {microseconds(50),  microseconds(100), microseconds(150), microseconds(200),
                                      microseconds(250), microseconds(300), microseconds(500), microseconds(2000)};
  for (const microseconds before : kBefore) fmt::print(" {:>13}", fmt::format("{} before", before.count()));
  for (const Notice& notice : kNotices) {
    fmt::print("\n{:<56}", notice.name);
    for (const microseconds before : kBefore) {
      const SwitchLatency latency = MeasureNotice(gpu, notice, before, commands, answers);
      fmt::print(" {:>13}", fmt::format("{:.0f} / {:.0f}", latency.p50_us, latency.p99_us));
    }
    std::fflush(stdout);
  }
  fmt::print("\n");
}

}  // namespace tally::server
