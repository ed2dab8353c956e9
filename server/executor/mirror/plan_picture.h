// What people see of a graph that is spread over GPUs: the steps of its plan by GPU, when each was to run, and when it
// ran last, in Graphviz's language.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/executor/mirror/placed_run.h"

namespace tally::server {

// A copy of what it needs: the graph may change or go.
struct PlanOutline {
  enum class Kind : uint8_t { kTask, kMove, kDrop };
  struct Step {
    Kind kind = Kind::kTask;
    uint32_t gpu = 0;   // 0 is home; of a move: that receives
    uint32_t from = 0;  // of a move
    uint32_t task = 0;
    uint32_t num_nodes = 0;
    uint32_t name = 0;       // of a task: place in `names`
    uint64_t num_bytes = 0;  // of a move
    std::chrono::nanoseconds planned_begin{0}, planned_end{0};
    std::vector<uint32_t> after{};
  };
  std::vector<Step> steps;
  std::vector<std::string> names;
};

// Of a plan with more steps there is a picture without edges.
constexpr size_t kMostStepsWithEdges = 4'000;

// `times`: of each step in the last launch; empty: there was none.
std::string PlanPicture(const PlanOutline& outline, std::span<const StepTimes> times);

}  // namespace tally::server
