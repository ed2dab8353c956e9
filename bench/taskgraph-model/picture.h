// A plan as a picture: a row for each GPU, what it runs and, below that, what it receives.
#pragma once

#include <span>
#include <string>

#include "scheduler/taskgraph/task_plan.h"
#include "tests/scheduler/taskgraph/factorisation.h"

namespace tally::taskgraph_model {

// SVG. `operations`: of the tasks.
std::string PictureOf(const scheduler::TaskPlan& plan, std::span<const scheduler::TileOperation> operations,
                      const std::string& title);

}  // namespace tally::taskgraph_model
