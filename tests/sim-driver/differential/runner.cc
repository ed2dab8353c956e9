#include "tests/sim-driver/differential/runner.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/check.h"

namespace tally::differential {
namespace {

// What hardware hides is an error here. One worker, so that a run repeats exactly.
constexpr sim_driver::MachineOptions kOptions = {
    .num_workers = 1, .check_uninitialized_shared = true, .strict_aligned_barriers = true};

}  // namespace

Runner::Runner() {
  auto machine = sim_driver::Machine::Create(kOptions);
  CHECK(machine.has_value());
  machine_ = std::move(*machine);
}

std::optional<std::string> Runner::Run(sim_driver::LaunchRequest request, uint64_t budget) {
  struct {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    std::optional<sim_driver::Fault> fault;
  } end;
  uint64_t before = machine_->counters().thread_instructions;
  uint64_t id = machine_->Submit(std::move(request), [&end](const std::optional<sim_driver::Fault>& fault) {
    std::lock_guard lock(end.mutex);
    end.fault = fault;
    end.is_done = true;
    end.changed.notify_all();
  });
  std::unique_lock lock(end.mutex);
  bool is_over_budget = false;
  while (!end.changed.wait_for(lock, std::chrono::milliseconds(20), [&end] { return end.is_done; })) {
    if (is_over_budget || machine_->counters().thread_instructions - before <= budget) continue;
    is_over_budget = true;
    lock.unlock();
    machine_->Cancel(id);
    lock.lock();
  }
  thread_instructions_ = machine_->counters().thread_instructions - before;
  if (is_over_budget) return fmt::format("does not end: {} thread instructions", thread_instructions_);
  if (end.fault) return fmt::format("fault {}: {}", end.fault->cu_result, end.fault->message);
  return std::nullopt;
}

}  // namespace tally::differential
