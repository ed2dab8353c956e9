#include "server/executor/dispatch/launch_costs.h"

#include <algorithm>

namespace tally::server {
namespace {

constexpr uint32_t kFirstLaunches = 4;
constexpr uint32_t kPeriod = 16;
// Two marks and their evaluation take about 3 us.
constexpr auto kLong = std::chrono::microseconds(200);
// The newest time moves what is believed by a quarter of the difference.
constexpr int kSmoothing = 4;

}  // namespace

LaunchCosts::Cost& LaunchCosts::Of(uint64_t key) {
  key = std::max<uint64_t>(key, 1);
  const size_t first = (key ^ key >> 32) * 0x9E3779B97F4A7C15 >> 54;
  static_assert(kNumCosts == 1 << 10);
  Cost* rarest = nullptr;
  for (size_t i = 0; i < kProbes; ++i) {
    Cost& cost = (*costs_)[(first + i) % kNumCosts];
    const uint64_t seen = cost.key_.load(std::memory_order_relaxed);
    if (seen == key) {
      ++cost.num_launches_;
      return cost;
    }
    if (rarest == nullptr || (seen == 0 && rarest->key_ != 0) || cost.num_launches_ < rarest->num_launches_) {
      rarest = &cost;
    }
    if (seen == 0) break;
  }
  rarest->key_.store(key, std::memory_order_relaxed);
  rarest->duration_ns_.store(0, std::memory_order_relaxed);
  rarest->num_launches_ = 1;
  return *rarest;
}

bool LaunchCosts::IsToBeTimed(const Cost& cost) const {
  return cost.num_launches_ <= kFirstLaunches || cost.num_launches_ % kPeriod == 0 ||
         cost.duration() == Nanoseconds(0) || cost.duration() >= kLong;
}

uint32_t LaunchCosts::Begin(Cost& cost, CUstream stream) {
  if (!IsToBeTimed(cost)) return kNone;
  Collect();
  const uint64_t key = cost.key_.load(std::memory_order_relaxed);
  // Small enough for a function to hold without memory of its own.
  return timer_.BeginSample(
      stream, [&cost, key](Nanoseconds taken) { cost.Learn(key, taken, /*was_quiet=*/true); },
      [&cost, key](Nanoseconds taken) { cost.Learn(key, taken, /*was_quiet=*/false); });
}

void LaunchCosts::Cost::Learn(uint64_t key, Nanoseconds taken, bool was_quiet) {
  if (key_.load(std::memory_order_relaxed) != key) return;  // pushed out meanwhile
  const int64_t known = duration_ns_.load(std::memory_order_relaxed);
  if (known != 0 && !was_quiet) return;
  const int64_t taken_ns = std::max<int64_t>(taken.count(), 500);
  duration_ns_.store(known == 0 ? taken_ns : known + (taken_ns - known) / kSmoothing, std::memory_order_relaxed);
}

}  // namespace tally::server
