// Keeps the GPU with this process's context in the gaps between high-priority requests.
//
// When the last kernel of a request ends, the GPU turns to the next context that has work: a best-effort kernel that the
// request had interrupted. The next request, which a queue may hold ready, then pays for another switch (0.13 to 0.2 ms
// on an H200), and so does every one behind it. So where a program waits for its work, a *guard* is put behind that
// work: one thread that does nothing, for no longer than best-effort work has to stay back anyway, and that ends as soon
// as the next launch comes.
//
//      high-priority   #### request ####|-guard-|#### request ####|--guard, for the hold-off--|
//      best-effort     ......................................................................  resumes
//
// Only of use where high-priority and best-effort contexts are different ones; off until Enable().
// Not thread-safe, except for Enable. One for each device, whose context must be current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/status.h"

namespace tally::server {

struct DriverTable;

class GapGuard {
 public:
  explicit GapGuard(const DriverTable& driver) : driver_(driver) {}
  // Leaves what it made to the end of the context.
  ~GapGuard() = default;
  GapGuard(const GapGuard&) = delete;
  GapGuard& operator=(const GapGuard&) = delete;

  // From any thread.
  void Enable(bool is_enabled) { is_enabled_.store(is_enabled, std::memory_order_relaxed); }

  // A guard behind what `last_work` stands for, in place of the one before. Takes some microseconds, the first time
  // milliseconds; never waits for the GPU. What fails is logged once, and there are no guards from then on.
  void PutBehind(CUevent last_work, std::chrono::nanoseconds limit);
  // More work is about to be launched: the guard ends, or does not begin.
  void Lift();

  uint64_t num_put() const { return num_put_; }

 private:
  CUresult Prepare();

  const DriverTable& driver_;
  std::atomic<bool> is_enabled_{false};
  bool is_broken_ = false;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  uint32_t* lifted_through_ = nullptr;  // the number of the last guard that is to end; the guards poll it
  CUdeviceptr lifted_address_ = 0;      // the same for the GPU
  uint32_t num_put_ = 0;
};

}  // namespace tally::server
