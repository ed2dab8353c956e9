// The best-effort launches in flight on one device whose time is known and short: slices, and kernels that are shorter
// than the turnaround threshold. Never more of them than drain within the threshold, or one.
//
// What was handed to the GPU cannot be taken back, but of such launches a few in flight are enough to keep it busy:
// while one runs the next is there. Thread-safe. The device's primary context must be current.
#pragma once

#include <cuda.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "scheduler/drain_budget.h"
#include "server/executor/dispatch/dispatch_gate.h"
#include "server/executor/driver/event_pool.h"

namespace tally::server {

class ShortLaunches {
 public:
  // `driver` outlives it. `longest_wait`: if nothing has ended for so long one more goes, because what is in flight may
  // wait for it.
  ShortLaunches(const DriverTable& driver, std::chrono::nanoseconds longest_wait);
  // The context must be current. Nothing that was entered is waited for.
  ~ShortLaunches() { events_.Clear(); }

  void SetTurnaroundThreshold(std::chrono::nanoseconds threshold);

  // Room for that launch, which takes kind.first_guess. Null: not now. Never waits.
  void* TryEnter(const DispatchOf& of, TimePoint now);
  // The launch that entered was handed to its stream, or failed. Never waits.
  void Leave(void* entered, CUstream stream);

 private:
  struct Launch {
    enum class State : uint8_t { kFree, kEntered, kLaunched } state = State::kFree;
    scheduler::TenantId tenant;
    scheduler::LaunchAsked asked;
    scheduler::Nanoseconds counted{0};
    CUevent done = nullptr;
  };
  static constexpr size_t kMostInFlight = 64;

  void CollectLocked(TimePoint now);

  const DriverTable& driver_;
  EventPool events_;
  std::mutex mutex_;
  scheduler::DrainBudget budget_;  // guarded by mutex_, as all below
  std::array<Launch, kMostInFlight> launches_{};
  std::vector<uint8_t> in_flight_;  // indices of launches_, in the order of their entry
};

}  // namespace tally::server
