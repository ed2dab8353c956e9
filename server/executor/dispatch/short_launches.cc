#include "server/executor/dispatch/short_launches.h"

#include <algorithm>

#include "scheduler/tuning.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {
namespace {

// All that is here is short, so the bound for short ones decides.
constexpr std::chrono::nanoseconds kNoOtherBound = std::chrono::hours(1);

// Lives as long as its launches.
scheduler::TenantId IdOf(const GateTenant* tenant) {
  const auto address = reinterpret_cast<uintptr_t>(tenant);
  return {static_cast<uint32_t>(address >> 32), static_cast<uint32_t>(address) | 1};
}

}  // namespace

ShortLaunches::ShortLaunches(const DriverTable& driver, std::chrono::nanoseconds longest_wait)
    : driver_(driver), events_(driver), budget_({}, {}, longest_wait) {
  SetTurnaroundThreshold(scheduler::Tuning{}.turnaround_threshold);
  in_flight_.reserve(kMostInFlight);
}

void ShortLaunches::SetTurnaroundThreshold(std::chrono::nanoseconds threshold) {
  const std::lock_guard lock(mutex_);
  budget_.Set(kNoOtherBound, threshold);
}

void* ShortLaunches::TryEnter(const DispatchOf& of, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const scheduler::TenantId tenant = IdOf(of.tenant);
  const scheduler::LaunchAsked asked{.duration = of.kind.first_guess,
                                     .stream = reinterpret_cast<uintptr_t>(of.stream),
                                     .is_short = true,
                                     .turnaround = of.turnaround};
  const auto is_room = [&] { return in_flight_.size() < kMostInFlight && budget_.Admits(tenant, asked, now); };
  if (!is_room()) {
    CollectLocked(now);
    if (!is_room()) return nullptr;
  }
  const auto free = std::find_if(launches_.begin(), launches_.end(),
                                 [](const Launch& launch) { return launch.state == Launch::State::kFree; });
  *free = {.state = Launch::State::kEntered,
           .tenant = tenant,
           .asked = asked,
           .counted = budget_.OnDispatched(tenant, asked, now)};
  in_flight_.push_back(static_cast<uint8_t>(free - launches_.begin()));
  return &*free;
}

void ShortLaunches::Leave(void* entered, CUstream stream) {
  CUevent done = nullptr;
  if (events_.Acquire(&done) != CUDA_SUCCESS) done = nullptr;
  if (done != nullptr && driver_.cuEventRecord(done, stream) != CUDA_SUCCESS) {
    events_.Release(done);
    done = nullptr;
  }
  const std::lock_guard lock(mutex_);
  auto* launch = static_cast<Launch*>(entered);
  launch->done = done;  // none: it counts as complete
  launch->state = Launch::State::kLaunched;
}

void ShortLaunches::CollectLocked(TimePoint now) {
  // Launches of one stream end in the order of their dispatch: behind one that has not ended no other need be asked.
  std::array<uint64_t, kMostInFlight> busy{};
  size_t num_busy = 0;
  std::erase_if(in_flight_, [&](uint8_t index) {
    Launch& launch = launches_[index];
    if (std::find(busy.begin(), busy.begin() + num_busy, launch.asked.stream) != busy.begin() + num_busy) return false;
    const bool has_ended = launch.state == Launch::State::kLaunched &&
                           (launch.done == nullptr || driver_.cuEventQuery(launch.done) != CUDA_ERROR_NOT_READY);
    if (!has_ended) {
      busy[num_busy++] = launch.asked.stream;
      return false;
    }
    budget_.OnEnded(launch.tenant, launch.asked, launch.counted, now);
    if (launch.done != nullptr) events_.Release(launch.done);
    launch = {};
    return true;
  });
}

}  // namespace tally::server
