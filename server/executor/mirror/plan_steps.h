// From a plan of the scheduler to steps that mirrors can carry out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "proto/shm/mirror_abi.h"
#include "scheduler/taskgraph/region_map.h"
#include "scheduler/taskgraph/task_plan.h"
#include "server/executor/mirror/step_queue.h"

namespace tally::server {

// What a task is on whichever GPU.
struct TaskWork {
  std::vector<StepCommand> commands{};  // launches and fills, one behind the other
  uint32_t number = 0;                  // of several: the task that they are on the mirror where it is placed
  CUgraphExec graph = nullptr;          // at home, in place of these
};

// An allocation of home that its mirrors have memory for, by the number that they know it by.
struct MirroredAllocation {
  uint32_t number = 0;
  uint64_t address = 0;
  uint64_t num_bytes = 0;
};

// One step for each of the plan's, in its order: tasks as `work` says, by TaskId; a move as a copy that a mirror makes,
// the one that receives, or the one that gives if home receives. Room that is given up is kept here: such a step only
// keeps the order. kInvalidArgument: a move of what lies in no allocation of `allocations`.
Result<std::vector<PlacedStep>> StepsOfPlan(const scheduler::TaskPlan& plan, const scheduler::RegionMap& regions,
                                            std::span<const TaskWork> work,
                                            std::span<const MirroredAllocation> allocations);

}  // namespace tally::server
