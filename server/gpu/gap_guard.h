// Keeps the GPU with this process's context in the gaps of high-priority work.
//
// Whenever nothing of a context is left to run, the GPU turns to the next context that has work: between two requests,
// and between two kernels of one request that the processor launches too late. If a best-effort kernel is in flight,
// the next launch then pays for another switch (0.13 to 0.2 ms on an H200), and so does every one behind it. So while
// high-priority work comes, and for as long afterwards as best-effort work has to stay back anyway, a *guard* is on
// the GPU: one thread that sleeps, looks whether it is still wanted, and does nothing else.
//
//      high-priority   ##  ### ##       #### ##   ###
//      guard            |--------------------------------hold-off--|
//      best-effort      ...........................................  resumes
//
// It takes a thread, a few registers and 1 KB of shared memory of one multiprocessor. It is launched right away, not
// behind the work that it is for: nothing waits for it, and it waits for nothing.
//
// Not thread-safe, but for Enable. One for each device, whose context must be current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace tally::server {

struct DriverTable;

class GapGuard {
 public:
  // A guard that nobody lifts ends by itself after this time.
  static constexpr std::chrono::milliseconds kLongestLife{10};

  explicit GapGuard(const DriverTable& driver) : driver_(driver) {}
  // Leaves what it made to the end of the context.
  ~GapGuard() = default;
  GapGuard(const GapGuard&) = delete;
  GapGuard& operator=(const GapGuard&) = delete;

  // Off until then. From any thread.
  void Enable(bool is_enabled) { is_enabled_.store(is_enabled, std::memory_order_relaxed); }

  // Sees to it that there is a guard that lives for another half of kLongestLife. Takes some microseconds when one is
  // to be launched, milliseconds the first time; never waits for the GPU. What fails is logged, and there are no guards
  // from then on.
  void Keep(const Clock& clock);
  // Ends all guards there are.
  void Lift();

  bool is_there() const { return is_there_; }
  uint32_t num_launched() const { return num_launched_; }

 private:
  CUresult Prepare();
  CUresult Launch();

  const DriverTable& driver_;
  std::atomic<bool> is_enabled_{false};
  bool is_broken_ = false;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  uint32_t* lifted_through_ = nullptr;  // the number of the last guard that is to end; the guards look at it
  CUdeviceptr lifted_address_ = 0;      // the same for the GPU
  uint32_t num_launched_ = 0;
  bool is_there_ = false;
  TimePoint launched_at_{};  // meaningful while is_there_
};

}  // namespace tally::server
