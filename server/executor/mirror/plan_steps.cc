#include "server/executor/mirror/plan_steps.h"

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
      const TaskWork& of_task = work[planned.what];
      step.gpu = planned.device;
      step.command = of_task.command;
      step.bytes = of_task.bytes;
      step.more = of_task.more;
      if (planned.device == scheduler::kHome) step.graph = of_task.graph;
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
