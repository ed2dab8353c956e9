// Runs tasks on memories of a few bytes: one after another, and as a plan says, on several GPUs in any order that it
// allows.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/taskgraph/task_plan.h"

namespace tally::scheduler {

using Memory = std::vector<uint8_t>;

inline void ForBytes(const Box& box, const auto& f) {
  for (uint64_t row = 0; row < box.rows(); ++row) {
    for (uint64_t i = 0; i < box.row_bytes(); ++i) f(box.begin() + row * box.pitch() + i);
  }
}

// What a task leaves depends on all that it reads, on its own number, and on what was there if it does not overwrite.
inline void RunTask(TaskId id, const Task& task, Memory& memory) {
  uint64_t hash = 0x9e3779b97f4a7c15 * (id + 1);
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0xff51afd7ed558ccd, hash ^= hash >> 29; };
  if (task.touches.extent != Extent::kSaid) {
    for (const uint8_t byte : memory) mix(byte);
  }
  for (const Access& access : task.touches.accesses) {
    if (Reads(access.kind)) ForBytes(access.box, [&](uint64_t at) { mix(memory[at]); });
  }
  const uint64_t made = hash;
  const auto write = [&](uint64_t at) {
    hash = made + at * 31;
    mix(at);
    memory[at] = static_cast<uint8_t>(hash);
  };
  for (const Access& access : task.touches.accesses) {
    if (!Writes(access.kind)) continue;
    // Every third byte is kept, unless it overwrites.
    ForBytes(access.box, [&](uint64_t at) {
      if (task.overwrites || (at + id) % 3 != 0) write(at);
    });
  }
  if (task.touches.extent == Extent::kAnything) {
    for (uint64_t at = id % 7; at < memory.size(); at += 7) write(at);
  }
}

inline Memory SerialRun(const std::vector<Task>& tasks, Memory memory) {
  for (TaskId id = 0; id < tasks.size(); ++id) RunTask(id, tasks[id], memory);
  return memory;
}

class PlanExecution {
 public:
  // `memories`: of the GPUs, home's first; those of the others hold anything.
  PlanExecution(const std::vector<Task>& tasks, const RegionMap& regions, const TaskPlan& plan, uint64_t most_bytes,
                std::vector<Memory>& memories)
      : tasks_(tasks),
        regions_(regions),
        plan_(plan),
        most_bytes_(most_bytes),
        memories_(memories),
        resident_(memories.size()) {}

  void Run(std::mt19937& random) {
    const size_t num_steps = plan_.steps().size();
    std::vector<size_t> num_waiting_for(num_steps);
    std::vector<std::vector<uint32_t>> behind(num_steps);
    std::vector<uint32_t> ready;
    for (uint32_t step = 0; step < num_steps; ++step) {
      num_waiting_for[step] = plan_.before(step).size();
      for (const uint32_t before : plan_.before(step)) {
        ASSERT_LT(before, step);
        ASSERT_LE(plan_.steps()[before].end_ns, plan_.steps()[step].begin_ns);
        behind[before].push_back(step);
      }
      if (num_waiting_for[step] == 0) ready.push_back(step);
    }
    size_t num_run = 0;
    while (!ready.empty()) {
      // Often the first or last: such orders are the farthest from the planned one.
      const size_t pick = random() % 3 == 0 ? random() % ready.size() : random() % 2 == 0 ? 0 : ready.size() - 1;
      const uint32_t step = ready[pick];
      ready.erase(ready.begin() + static_cast<ptrdiff_t>(pick));
      ASSERT_NO_FATAL_FAILURE(RunStep(plan_.steps()[step]));
      ++num_run;
      for (const uint32_t next : behind[step]) {
        if (--num_waiting_for[next] == 0) ready.push_back(next);
      }
    }
    ASSERT_EQ(num_run, num_steps);
    ASSERT_EQ(ran_.size(), tasks_.size());
  }
  uint64_t moved_bytes() const { return moved_bytes_; }

 private:
  void RunStep(const PlanStep& step) {
    if (step.kind == StepKind::kDrop) {
      ASSERT_TRUE(resident_[step.device].erase(step.what));
      return ForBytes(regions_.region(step.what).box, [&](uint64_t at) { memories_[step.device][at] ^= 0xa5; });
    }
    if (step.kind == StepKind::kMove) {
      ASSERT_FALSE(regions_.region(step.what).is_home_only);
      ForBytes(regions_.region(step.what).box,
               [&](uint64_t at) { memories_[step.device][at] = memories_[step.from][at], ++moved_bytes_; });
      return Keep(step.what, step.device);
    }
    ASSERT_TRUE(ran_.insert(step.what).second) << "twice";
    ASSERT_EQ(plan_.device_of(step.what), step.device);
    for (const RegionUse& use : regions_.uses(step.what)) Keep(use.region, step.device);
    RunTask(step.what, tasks_[step.what], memories_[step.device]);
  }
  void Keep(RegionId region, DeviceId device) {
    if (device == kHome) return;
    resident_[device].insert(region);
    uint64_t bytes = 0;
    for (const RegionId kept : resident_[device]) bytes += regions_.region(kept).bytes();
    ASSERT_LE(bytes, most_bytes_);
  }

  const std::vector<Task>& tasks_;
  const RegionMap& regions_;
  const TaskPlan& plan_;
  const uint64_t most_bytes_;
  std::vector<Memory>& memories_;
  std::vector<std::set<RegionId>> resident_;
  std::set<TaskId> ran_;
  uint64_t moved_bytes_ = 0;
};

}  // namespace tally::scheduler
