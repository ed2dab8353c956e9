// TaskPlan: which GPU runs which task, when, and what is moved for that; made before the graph runs.
//
//      step 0   task A on GPU 0
//      step 1   move region 3 from GPU 0 to 1       behind step 0
//      step 2   task B on GPU 1                     behind step 1
//      step 3   task C on GPU 0                     behind step 0
//
// Steps may run in any order in which each comes behind those that it names, whatever GPU these are on; then memory at
// home is, bit by bit, what the tasks leave there one after another. All names are of earlier steps, so nothing ever
// waits in a circle.
//
// How it is made: the graph is run in a model. A task that may run waits where the memory is that it writes (the
// owner), ordered by priority and the way to the end. A GPU is given the next task while one runs, so that what that
// one needs is moved meanwhile. A GPU that has nothing to do steals from the one with the most, if the task begins
// sooner so. What nobody writes again goes home at once. A GPU of the model runs one task at a time. If all at home,
// one after another, is as quick, that is the plan.
//
// Pinned to home: tasks that are said to be, that may do or read anything, that touch regions that do not leave home,
// or more memory than there is room for elsewhere.
//
// Pure: the same graph gives the same plan. A few steps and logarithms per edge and use; bounded by what the graph, the
// map and the directory allow. Source: MUSTARD (3.2.6 has one queue for all and fetches all inputs from one GPU);
// owner computes and stealing as StarPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "scheduler/taskgraph/region_directory.h"
#include "scheduler/taskgraph/region_map.h"
#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

struct PlanMachine {
  size_t num_devices = 1;
  uint64_t link_bytes_per_us = 0;    // each GPU sends so much, and receives so much meanwhile
  uint64_t link_latency_ns = 0;      // of a move
  uint64_t start_ns = 0;             // of a task: until it runs once it may
  uint64_t most_bytes = UINT64_MAX;  // of copies on each GPU but home
};

enum class StepKind : uint8_t { kTask, kMove, kDrop };

struct PlanStep {
  StepKind kind = StepKind::kTask;
  DeviceId device = kHome;  // that runs the task; that the contents go to; that gives up the room
  DeviceId from = kHome;    // of a move
  uint32_t what = 0;        // TaskId or RegionId
  // Predicted.
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

class TaskPlan {
 public:
  // `regions`: of the graph's tasks. kResourceExhausted: too many copies for so many GPUs.
  static Result<TaskPlan> Make(const TaskGraph& graph, const RegionMap& regions, const PlanMachine& machine);

  std::span<const PlanStep> steps() const { return steps_; }
  // Steps that this one comes behind: lower numbers, each once, ascending.
  std::span<const uint32_t> before(uint32_t step) const {
    return {before_.data() + before_begin_[step], before_begin_[step + 1] - before_begin_[step]};
  }
  DeviceId device_of(TaskId task) const { return device_of_[task]; }
  uint64_t moved_bytes() const { return moved_bytes_; }
  // Predicted, from the first begin to the last end, with everything back home.
  uint64_t end_ns() const { return end_ns_; }

 private:
  friend class TaskPlanner;
  TaskPlan() = default;

  std::vector<PlanStep> steps_;
  std::vector<uint32_t> before_;
  std::vector<size_t> before_begin_ = {0};
  std::vector<DeviceId> device_of_;
  uint64_t moved_bytes_ = 0;
  uint64_t end_ns_ = 0;
};

}  // namespace tally::scheduler
