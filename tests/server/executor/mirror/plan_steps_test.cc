// What becomes of a plan's tasks, by where they are placed.
#include "server/executor/mirror/plan_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "scheduler/taskgraph/task_graph.h"

namespace tally::server {
namespace {

using scheduler::RegionMap;
using scheduler::Task;
using scheduler::TaskGraph;
using scheduler::TaskPlan;
using shm::MirrorCommandKind;

constexpr uint64_t kBytes = 4096;

StepCommand Launch(uint32_t function, std::array<uint32_t, 3> grid) {
  StepCommand made;
  made.command.kind = MirrorCommandKind::kLaunch;
  made.command.function = function;
  std::ranges::copy(grid, made.command.grid);
  made.bytes.assign(function, std::byte{1});
  return made;
}

class PlanStepsTest : public testing::Test {
 protected:
  // Independent tasks: half of them go to the other GPU. Task i writes piece i.
  std::vector<PlacedStep> StepsOf(const std::vector<TaskWork>& work) {
    std::vector<Task> tasks(work.size());
    for (uint32_t i = 0; i < tasks.size(); ++i) {
      tasks[i].touches.extent = scheduler::Extent::kSaid;
      tasks[i].touches.accesses = {
          {*scheduler::Box::Rows(kBytes * (i + 1), kBytes, 1, kBytes), scheduler::AccessKind::kReadWrite}};
      tasks[i].cost_ns = 10'000'000;
    }
    const auto regions = RegionMap::Make(tasks);
    const auto graph = TaskGraph::Make(tasks, {});
    EXPECT_TRUE(regions.has_value() && graph.has_value());
    const auto plan = TaskPlan::Make(*graph, *regions, {.num_devices = 2, .link_bytes_per_us = 1'000});
    EXPECT_TRUE(plan.has_value());
    const std::vector<MirroredAllocation> allocations = {{0, kBytes, kBytes * work.size()}};
    auto steps = StepsOfPlan(*plan, *regions, work, allocations);
    EXPECT_TRUE(steps.has_value());
    return std::move(*steps);
  }
};

TEST_F(PlanStepsTest, ATaskIsItsLaunchOrWhatStandsForSeveral) {
  auto* const graph = reinterpret_cast<CUgraphExec>(this);
  const TaskWork one{.commands = {Launch(3, {2, 3, 4})}, .number = 8, .graph = graph};
  const TaskWork several{
      .commands = {Launch(1, {2, 1, 1}), Launch(2, {7, 5, 2}), Launch(3, {9, 1, 1})}, .number = 9, .graph = graph};
  const auto steps = StepsOf({one, one, several, several});
  int num_home = 0, num_launched = 0, num_run = 0;
  for (const PlacedStep& step : steps) {
    if (step.is_copy()) continue;
    EXPECT_TRUE(step.num_blocks == 24 || step.num_blocks == 70) << step.num_blocks;
    if (step.gpu == 0) {
      EXPECT_EQ(step.graph, graph);
      ++num_home;
      continue;
    }
    EXPECT_EQ(step.graph, nullptr);
    if (step.command.kind == MirrorCommandKind::kLaunch) {
      EXPECT_EQ(step.num_blocks, 24u);
      EXPECT_EQ(step.bytes.size(), 3u);
      ++num_launched;
    } else {
      EXPECT_EQ(step.command.kind, MirrorCommandKind::kRun);
      EXPECT_EQ(step.command.task, 9u);
      EXPECT_EQ(step.num_blocks, 70u);
      ++num_run;
    }
  }
  EXPECT_EQ(num_home, 2);
  EXPECT_EQ(num_launched + num_run, 2);
  EXPECT_GT(num_run, 0);
}

TEST_F(PlanStepsTest, NumbersOfBlocksDoNotWrap) {
  const TaskWork endless{.commands = {Launch(0, {0xffffffff, 0xffffffff, 0xffffffff})}};
  for (const PlacedStep& step : StepsOf({endless, endless})) {
    EXPECT_EQ(step.num_blocks, step.is_copy() ? 1 : UINT64_MAX);
  }
}

TEST_F(PlanStepsTest, ATaskWithoutCommandsIsAnEmptyStep) {
  for (const PlacedStep& step : StepsOf({TaskWork{}, TaskWork{}})) {
    EXPECT_TRUE(step.is_copy() || step.is_empty());
  }
}

}  // namespace
}  // namespace tally::server
