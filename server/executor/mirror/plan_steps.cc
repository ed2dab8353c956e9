#include "server/executor/mirror/plan_steps.h"

#include <algorithm>

namespace tally::server {
namespace {

using scheduler::StepKind;
using shm::MirrorCommandKind;

const MirroredAllocation* Around(const scheduler::Box& box, std::span<const MirroredAllocation> allocations) {
  for (const MirroredAllocation& allocation : allocations) {
    if (box.begin() >= allocation.address && box.end() - allocation.address <= allocation.num_bytes) return &allocation;
  }
  return nullptr;
}

PlacedStep MoveOf(const scheduler::PlanStep& planned, const scheduler::Box& box, const MirroredAllocation& allocation) {
  const bool goes_home = planned.device == scheduler::kHome;
  PlacedStep step;
  step.gpu = goes_home ? planned.from : planned.device;
  step.command.kind = goes_home ? MirrorCommandKind::kWriteBack : MirrorCommandKind::kFetch;
  step.command.gpu = goes_home ? planned.device : planned.from;
  step.command.allocation = allocation.number;
  step.command.offset = box.begin() - allocation.address;
  step.command.row_bytes = box.row_bytes();
  step.command.pitch = box.pitch();
  step.command.rows = box.rows();
  return step;
}

uint64_t BlocksOf(const shm::MirrorCommand& command) {
  if (command.kind != MirrorCommandKind::kLaunch) return 1;
  uint64_t num_blocks = uint64_t{command.grid[0]} * command.grid[1];  // both are below 2^32
  return __builtin_mul_overflow(num_blocks, command.grid[2], &num_blocks) ? UINT64_MAX : num_blocks;
}

PlacedStep TaskOf(const TaskWork& work, scheduler::DeviceId device) {
  PlacedStep step;
  step.gpu = device;
  for (const StepCommand& part : work.commands) step.num_blocks = std::max(step.num_blocks, BlocksOf(part.command));
  if (device == scheduler::kHome) step.graph = work.graph;
  if (work.commands.size() == 1) {
    step.command = work.commands[0].command;
    step.bytes = work.commands[0].bytes;
  } else if (!work.commands.empty() && step.graph == nullptr) {
    step.command.kind = MirrorCommandKind::kRun;
    step.command.task = work.number;
  }
  return step;
}

}  // namespace

Result<std::vector<PlacedStep>> StepsOfPlan(const scheduler::TaskPlan& plan, const scheduler::RegionMap& regions,
                                            std::span<const TaskWork> work,
                                            std::span<const MirroredAllocation> allocations) {
  std::vector<PlacedStep> steps;
  steps.reserve(plan.steps().size());
  for (uint32_t i = 0; i < plan.steps().size(); ++i) {
    const scheduler::PlanStep& planned = plan.steps()[i];
    PlacedStep step;
    if (planned.kind == StepKind::kTask) {
      step = TaskOf(work[planned.what], planned.device);
    } else if (planned.kind == StepKind::kMove) {
      const scheduler::Box& box = regions.region(planned.what).box;
      const MirroredAllocation* const allocation = Around(box, allocations);
      if (allocation == nullptr) return Error(StatusCode::kInvalidArgument, "a region that no mirror has memory for");
      step = MoveOf(planned, box, *allocation);
    }
    step.after.assign(plan.before(i).begin(), plan.before(i).end());
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace tally::server
