#include "server/executor/dispatch/launch_costs.h"

#include <algorithm>

#include "server/executor/driver/driver_table.h"

namespace tally::server {
namespace {

constexpr uint32_t kFirstLaunches = 4;
constexpr uint32_t kPeriod = 16;
// Two events and their evaluation take about 3 us.
constexpr auto kLong = std::chrono::microseconds(200);
// The newest time moves what is believed by a quarter of the difference.
constexpr int kSmoothing = 4;

}  // namespace

LaunchCosts::~LaunchCosts() {
  for (const Sample& sample : samples_) {
    for (CUevent event : {sample.begin, sample.end}) {
      if (event != nullptr) driver_.cuEventDestroy_v2(event);
    }
  }
}

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
  const std::lock_guard lock(mutex_);
  const auto free =
      std::find_if(samples_.begin(), samples_.end(), [](const auto& s) { return s.state == Sample::State::kFree; });
  if (free == samples_.end()) return kNone;
  Sample& sample = *free;
  for (CUevent* event : {&sample.begin, &sample.end}) {
    if (*event == nullptr && driver_.cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return kNone;
  }
  sample.phase = watch_.QuietPhase(device_);
  if (driver_.cuEventRecord(sample.begin, stream) != CUDA_SUCCESS) return kNone;
  sample.cost = &cost;
  sample.key = cost.key_.load(std::memory_order_relaxed);
  sample.state = Sample::State::kBegun;
  return static_cast<uint32_t>(free - samples_.begin());
}

void LaunchCosts::End(uint32_t index, CUstream stream) {
  if (index == kNone) return;
  const std::lock_guard lock(mutex_);
  Sample& sample = samples_[index];
  const bool is_recorded = driver_.cuEventRecord(sample.end, stream) == CUDA_SUCCESS;
  sample.state = is_recorded ? Sample::State::kEnded : Sample::State::kFree;
}

void LaunchCosts::Collect() {
  const std::lock_guard lock(mutex_);
  for (Sample& sample : samples_) {
    if (sample.state != Sample::State::kEnded) continue;
    if (driver_.cuEventQuery(sample.end) == CUDA_ERROR_NOT_READY) continue;
    Note(sample);
    sample.state = Sample::State::kFree;
  }
}

void LaunchCosts::Note(Sample& sample) {
  float milliseconds = 0;
  if (driver_.cuEventElapsedTime(&milliseconds, sample.begin, sample.end) != CUDA_SUCCESS) return;
  Cost& cost = *sample.cost;
  if (cost.key_.load(std::memory_order_relaxed) != sample.key) return;  // pushed out meanwhile
  const int64_t known = cost.duration_ns_.load(std::memory_order_relaxed);
  const bool was_quiet = sample.phase && watch_.QuietPhase(device_) == sample.phase;
  if (known != 0 && !was_quiet) return;
  const int64_t taken = std::max<int64_t>(static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6), 500);
  cost.duration_ns_.store(known == 0 ? taken : known + (taken - known) / kSmoothing, std::memory_order_relaxed);
}

}  // namespace tally::server
