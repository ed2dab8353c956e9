#include "scheduler/taskgraph/task_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/taskgraph/coarsening.h"
#include "scheduler/taskgraph/needed_edges.h"
#include "tests/scheduler/taskgraph/factorisation.h"
#include "tests/scheduler/taskgraph/graph_shapes.h"
#include "tests/scheduler/taskgraph/plan_execution.h"
#include "tests/scheduler/taskgraph/random_tasks.h"

namespace tally::scheduler {
namespace {

constexpr PlanMachine kMachine = {.num_devices = 4, .link_bytes_per_us = 1, .link_latency_ns = 500, .start_ns = 100};

TaskGraph WithNeededEdges(const std::vector<Task>& tasks) {
  const auto graph = TaskGraph::Make(tasks, InProgramOrder(static_cast<uint32_t>(tasks.size())));
  const auto needed = NeededEdges(*graph, *RegionMap::Make(tasks));
  return needed ? graph->With(*needed) : *graph;
}

std::vector<Memory> Memories(std::mt19937& random, size_t num_devices, size_t bytes) {
  std::vector<Memory> memories(num_devices, Memory(bytes));
  for (Memory& memory : memories) {
    for (uint8_t& byte : memory) byte = static_cast<uint8_t>(random());
  }
  return memories;
}

// The plan, run in any order that it allows, leaves at home what the tasks leave one after another, and moves as many
// bytes as it says.
void ExpectRunsAlike(std::mt19937& random, const std::vector<Task>& tasks, const TaskGraph& graph,
                     const PlanMachine& machine, std::vector<Memory>& memories) {
  const auto regions = RegionMap::Make(graph.tasks());
  const auto plan = TaskPlan::Make(graph, *regions, machine);
  ASSERT_TRUE(plan);
  const Memory serial = SerialRun(tasks, memories[kHome]);
  PlanExecution execution(tasks, *regions, *plan, machine.most_bytes, memories);
  ASSERT_NO_FATAL_FAILURE(execution.Run(random));
  ASSERT_EQ(memories[kHome], serial);
  ASSERT_EQ(execution.moved_bytes(), plan->moved_bytes());
  ASSERT_LE(plan->end_ns(), graph.total_ns() + graph.size() * machine.start_ns) << "one GPU is quicker";
  for (TaskId id = 0; id < tasks.size(); ++id) {
    if (tasks[id].is_pinned || tasks[id].touches.extent != Extent::kSaid) {
      ASSERT_EQ(plan->device_of(id), kHome);
    }
  }
}
void ExpectRunsAlike(std::mt19937& random, const std::vector<Task>& tasks, const PlanMachine& machine, size_t bytes) {
  std::vector<Memory> memories = Memories(random, machine.num_devices, bytes);
  ExpectRunsAlike(random, tasks, WithNeededEdges(tasks), machine, memories);
}

PlanMachine RandomMachine(std::mt19937& random) {
  return {.num_devices = size_t{1} << random() % 4,
          .link_bytes_per_us = 1 + random() % 1000,
          .link_latency_ns = random() % 5'000,
          .start_ns = random() % 5'000,
          .most_bytes = random() % 2 == 0 ? UINT64_MAX : random() % 128};
}

// Tasks that share nothing but scratch memory run on several GPUs, and on one of them never at a time.
TEST(TaskPlanTest, ScratchMemoryIsEachGpusOwn) {
  std::vector<Task> tasks(24);
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].cost_ns = 100'000;
    tasks[i].touches = {.extent = Extent::kSaid, .accesses = {{*Box::Range(64 * i, 64), AccessKind::kReadWrite}}};
    tasks[i].scratch = {i % 2 == 0 ? 7u : 8u, 9};
  }
  const auto graph = TaskGraph::Make(tasks, {});
  const auto regions = RegionMap::Make(tasks);
  const auto plan = TaskPlan::Make(*graph, *regions, kMachine);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moved_bytes() % 64, 0u) << "nothing of it is moved";
  std::vector<std::vector<uint32_t>> on_device(kMachine.num_devices);  // steps
  for (uint32_t step = 0; step < plan->steps().size(); ++step) {
    if (plan->steps()[step].kind == StepKind::kTask) on_device[plan->steps()[step].device].push_back(step);
  }
  for (const std::vector<uint32_t>& steps : on_device) {
    EXPECT_FALSE(steps.empty());
    for (size_t i = 1; i < steps.size(); ++i) {
      EXPECT_NE(std::ranges::find(plan->before(steps[i]), steps[i - 1]), plan->before(steps[i]).end());
      EXPECT_GE(plan->steps()[steps[i]].begin_ns, plan->steps()[steps[i - 1]].end_ns);
    }
  }
}

TEST(TaskPlanTest, RandomTasks) {
  std::mt19937 random(8);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Task> tasks =
        RandomTasks(random, static_cast<uint32_t>(1 + random() % 40),
                    {.has_one_pitch = random() % 2 == 0, .percent_opaque = round % 4 == 0 ? 10u : 0u});
    ASSERT_NO_FATAL_FAILURE(ExpectRunsAlike(random, tasks, RandomMachine(random), kMemoryBytes)) << round;
  }
}

TEST(TaskPlanTest, GraphShapes) {
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    for (int shape = 0; shape < kNumGraphShapes; ++shape) {
      const std::vector<Task> tasks = ShapeMaker(random).Make(static_cast<GraphShape>(shape));
      for (const size_t num_devices : {1, 2, 4, 8}) {
        PlanMachine machine = RandomMachine(random);
        machine.num_devices = num_devices;
        ASSERT_NO_FATAL_FAILURE(ExpectRunsAlike(random, tasks, machine, 256)) << shape;
      }
    }
  }
}

TEST(TaskPlanTest, FactorisationsWithRaggedTiles) {
  std::mt19937 random(10);
  for (const Factorisation kind : {Factorisation::kLu, Factorisation::kCholesky}) {
    for (const uint64_t size : {8, 11, 13}) {
      for (const uint64_t tile : {2, 3, 5}) {
        const std::vector<Task> tasks =
            FactorisationTasks(kind, {.size = size, .tile = tile, .element_bytes = 1}, [](auto...) { return 50'000; });
        ASSERT_NO_FATAL_FAILURE(ExpectRunsAlike(random, tasks, RandomMachine(random), 256));
      }
    }
  }
}

// Two graphs, one behind the other: the copies of the first are no longer what the second one needs.
TEST(TaskPlanTest, TwoGraphsOnOneBuffer) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const PlanMachine machine = RandomMachine(random);
    std::vector<Memory> memories = Memories(random, machine.num_devices, kMemoryBytes);
    for (int graph = 0; graph < 2; ++graph) {
      const std::vector<Task> tasks = RandomTasks(random, 20, {.percent_opaque = 0});
      ASSERT_NO_FATAL_FAILURE(ExpectRunsAlike(random, tasks, WithNeededEdges(tasks), machine, memories));
    }
  }
}

TEST(TaskPlanTest, BranchesAreSpread) {
  std::mt19937 random(12);
  std::vector<Task> tasks = ShapeMaker(random).Make(GraphShape::kBranches);
  for (Task& task : tasks) task.cost_ns = 100'000;
  const TaskGraph graph = WithNeededEdges(tasks);
  const auto plan = TaskPlan::Make(graph, *RegionMap::Make(tasks), kMachine);
  ASSERT_TRUE(plan);
  EXPECT_LT(plan->end_ns(), graph.total_ns() * 100 / 370) << "four GPUs";
  EXPECT_LE(plan->moved_bytes(), 6 * 2 * kCellBytes) << "each branch goes there once, and back once";
  for (TaskId id = 8; id < tasks.size(); ++id) EXPECT_EQ(plan->device_of(id), plan->device_of(id % 8));
}

TEST(TaskPlanTest, AChainStaysHome) {
  std::mt19937 random(13);
  const std::vector<Task> tasks = ShapeMaker(random).Make(GraphShape::kChain);
  const auto plan = TaskPlan::Make(WithNeededEdges(tasks), *RegionMap::Make(tasks), kMachine);
  EXPECT_EQ(plan->moved_bytes(), 0);
  EXPECT_EQ(plan->steps().size(), kNumShapeTasks);
}

// Long tasks of little memory are worth it, short ones of much are not.
TEST(TaskPlanTest, NothingIsStolenThatWouldEndLater) {
  std::mt19937 random(14);
  std::vector<Task> tasks = ShapeMaker(random).Make(GraphShape::kBranches);
  for (Task& task : tasks) task.cost_ns = 10;
  const auto plan = TaskPlan::Make(WithNeededEdges(tasks), *RegionMap::Make(tasks), kMachine);
  EXPECT_EQ(plan->moved_bytes(), 0);
}

// Nor is one whose memory would be on its way for longer, beside others that are worth it.
TEST(TaskPlanTest, WhatHomeWouldEndSoonerStaysThere) {
  std::vector<Task> tasks(4);
  for (TaskId id = 0; id < tasks.size(); ++id) {
    tasks[id] = {.touches = {Extent::kSaid, {{*Box::Range(id * 1000, id == 3 ? 400 : 8), AccessKind::kReadWrite}}},
                 .cost_ns = std::array{50'000u, 150'000u, 50'000u, 100'000u}[id]};
  }
  PlanMachine machine = kMachine;
  machine.num_devices = 2;
  const auto plan = TaskPlan::Make(WithNeededEdges(tasks), *RegionMap::Make(tasks), machine);
  EXPECT_EQ(plan->device_of(3), kHome);
  EXPECT_LT(plan->end_ns(), 260'000) << "350,000 at home";
}

TEST(TaskPlanTest, CriticalTasksGoFirst) {
  // 0 .. 3 are a chain, 4 and 5 are beside it.
  std::vector<Task> tasks(6);
  for (TaskId id = 0; id < tasks.size(); ++id) {
    const uint64_t cell = id < 4 ? 0 : id;
    tasks[id] = {.touches = {Extent::kSaid, {{*Box::Range(cell * 8, 8), AccessKind::kReadWrite}}}, .cost_ns = 100};
  }
  const auto plan = TaskPlan::Make(WithNeededEdges(tasks), *RegionMap::Make(tasks), {.num_devices = 1});
  EXPECT_EQ(plan->steps()[0].what, 0);
  EXPECT_EQ(plan->steps()[1].what, 4) << "as nothing else may run yet";
  tasks[5].priority = -1;
  EXPECT_EQ(TaskPlan::Make(WithNeededEdges(tasks), *RegionMap::Make(tasks), {.num_devices = 1})->steps()[0].what, 5);
}

TEST(TaskPlanTest, PartitionsAreTasksToo) {
  std::mt19937 random(15);
  for (int round = 0; round < 300; ++round) {
    const std::vector<Task> tasks = RandomTasks(random, 40, {.percent_opaque = round % 3 == 0 ? 4u : 0u});
    const TaskGraph graph = WithNeededEdges(tasks);
    const Coarsening coarsening =
        Coarsen(graph, {.shape = PartitionShape::kBranches, .most_tasks = 1 + random() % 8, .target_ns = 100'000});
    const TaskGraph coarse = GraphOfPartitions(graph, coarsening);
    const auto regions = RegionMap::Make(coarse.tasks());
    const PlanMachine machine = RandomMachine(random);
    const auto plan = TaskPlan::Make(coarse, *regions, machine);
    std::vector<Memory> memories = Memories(random, machine.num_devices, kMemoryBytes);
    const Memory serial = SerialRun(tasks, memories[kHome]);
    // Steps in their own order, all tasks of a partition for each.
    for (const PlanStep& step : plan->steps()) {
      if (step.kind == StepKind::kMove) {
        ForBytes(regions->region(step.what).box,
                 [&](uint64_t at) { memories[step.device][at] = memories[step.from][at]; });
      }
      if (step.kind != StepKind::kTask) continue;
      for (const TaskId id : coarsening.partitions[step.what].tasks) RunTask(id, tasks[id], memories[step.device]);
    }
    ASSERT_EQ(memories[kHome], serial);
  }
}

TEST(TaskPlanTest, CostIsBounded) {
  std::vector<Task> tasks(1);
  tasks[0].touches.extent = Extent::kSaid;
  for (uint64_t i = 0; i < RegionDirectory::kMostCopies / 8; ++i) {
    tasks[0].touches.accesses.push_back({*Box::Range(i * 8, 4), AccessKind::kRead});
  }
  const auto graph = TaskGraph::Make(tasks, {});
  const auto regions = RegionMap::Make(tasks);
  EXPECT_TRUE(TaskPlan::Make(*graph, *regions, {.num_devices = 8}));
  EXPECT_EQ(TaskPlan::Make(*graph, *regions, {.num_devices = 9}).error().code(), StatusCode::kResourceExhausted);
}

// Two GPUs have nothing to do and ask again after each task of a chain whether they should take one that touches very
// much.
TEST(TaskPlanTest, LookingForWorkIsCheapWhateverATaskTouches) {
  std::vector<Task> tasks;
  const auto add = [&](uint64_t cost_ns, bool is_pinned) -> Task& {
    tasks.push_back({.is_pinned = is_pinned, .touches = {Extent::kSaid, {}}, .cost_ns = cost_ns});
    return tasks.back();
  };
  for (int i = 0; i < 2; ++i) add(1'000'000'000, true);
  Task& large = add(1, false);
  for (uint64_t i = 0; i < 200'000; ++i) {
    large.touches.accesses.push_back({*Box::Range(i * 8, 4), AccessKind::kReadWrite});
  }
  std::vector<GraphEdge> edges;
  for (TaskId id = 3; id < 60'000; ++id) {
    add(1'000, false).touches.accesses.push_back({*Box::Range(uint64_t{1} << 40, 8), AccessKind::kReadWrite});
    if (id > 3) edges.push_back({id - 1, id});
  }
  const auto graph = TaskGraph::Make(tasks, edges);
  const auto plan = TaskPlan::Make(*graph, *RegionMap::Make(tasks),
                                   {.num_devices = 4, .link_bytes_per_us = 1, .link_latency_ns = 1'000'000});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->device_of(2), kHome);
  EXPECT_NE(plan->device_of(3), kHome);
}

TEST(TaskPlanTest, TheLargestGraphs) {
  std::mt19937 random(16);
  std::vector<Task> tasks(kMostTasks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].touches = {Extent::kSaid, {{*Box::Range(random() % 4096 * 8, 8), AccessKind::kReadWrite}}};
    tasks[i].cost_ns = UINT64_MAX / 3;
  }
  const auto graph = TaskGraph::Make(tasks, RandomEdges(random, kMostTasks, 4));
  EXPECT_TRUE(TaskPlan::Make(*graph, *RegionMap::Make(tasks), {.num_devices = 8}));
  for (Task& task : tasks) task = Task{};
  const auto opaque = TaskGraph::Make(tasks, {});
  const auto plan = TaskPlan::Make(*opaque, *RegionMap::Make(tasks), {.num_devices = 8});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moved_bytes(), 0);
}

}  // namespace
}  // namespace tally::scheduler
