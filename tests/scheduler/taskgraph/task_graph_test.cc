#include "scheduler/taskgraph/task_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/scheduler/taskgraph/random_graph.h"

namespace tally::scheduler {
namespace {

std::vector<Task> Costing(const std::vector<uint64_t>& costs_ns) {
  std::vector<Task> tasks(costs_ns.size());
  for (size_t i = 0; i < tasks.size(); ++i) tasks[i].cost_ns = costs_ns[i];
  return tasks;
}
std::vector<TaskId> Listed(std::span<const TaskId> ids) { return {ids.begin(), ids.end()}; }

TEST(TaskGraphTest, RanksAreLongestWaysToTheEnd) {
  const auto graph = TaskGraph::Make(Costing({2, 5, 1, 1}), {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {0, 1}});
  ASSERT_TRUE(graph);
  EXPECT_EQ(graph->rank_ns(0), 8);
  EXPECT_EQ(graph->rank_ns(1), 6);
  EXPECT_EQ(graph->rank_ns(2), 2);
  EXPECT_EQ(graph->rank_ns(3), 1);
  EXPECT_EQ(graph->critical_path_ns(), 8);
  EXPECT_EQ(graph->total_ns(), 9);
  EXPECT_EQ(graph->edges().size(), 4) << "one was given twice";
  EXPECT_EQ(Listed(graph->before(3)), (std::vector<TaskId>{1, 2}));
  EXPECT_EQ(Listed(graph->behind(0)), (std::vector<TaskId>{1, 2}));
}

TEST(TaskGraphTest, WhatIsNoGraphIsRefused) {
  EXPECT_EQ(TaskGraph::Make(Costing({1, 1}), {{0, 1}, {1, 0}}).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TaskGraph::Make(Costing({1}), {{0, 0}}).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TaskGraph::Make(Costing({1}), {{0, 1}}).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TaskGraph::Make(Costing({1}), {{7, 0}}).error().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(TaskGraph::Make({}, {}));
}

TEST(TaskGraphTest, WhatIsTooLargeIsRefused) {
  EXPECT_TRUE(TaskGraph::Make(std::vector<Task>(kMostTasks), {}));
  EXPECT_EQ(TaskGraph::Make(std::vector<Task>(kMostTasks + 1), {}).error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(TaskGraph::Make(std::vector<Task>(1'000'000), {}).error().code(), StatusCode::kResourceExhausted);
  std::vector<GraphEdge> edges(kMostTaskEdges, GraphEdge{0, 1});
  EXPECT_TRUE(TaskGraph::Make(std::vector<Task>(2), edges));
  edges.push_back({0, 1});
  EXPECT_EQ(TaskGraph::Make(std::vector<Task>(2), edges).error().code(), StatusCode::kResourceExhausted);
}

TEST(TaskGraphTest, CostsDoNotWrap) {
  const auto graph = TaskGraph::Make(Costing({UINT64_MAX, UINT64_MAX - 1, 5}), {{0, 1}, {1, 2}});
  ASSERT_TRUE(graph);
  EXPECT_EQ(graph->critical_path_ns(), UINT64_MAX);
  EXPECT_EQ(graph->total_ns(), UINT64_MAX);
  EXPECT_EQ(graph->rank_ns(2), 5);
}

TEST(TaskGraphTest, OrderAndRanksOfRandomGraphs) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto num_tasks = static_cast<uint32_t>(1 + random() % 40);
    std::vector<uint64_t> costs;
    for (uint32_t i = 0; i < num_tasks; ++i) costs.push_back(random() % 100);
    const auto graph = TaskGraph::Make(Costing(costs), RandomEdges(random, num_tasks, 4));
    ASSERT_TRUE(graph);
    std::vector<size_t> place(num_tasks, SIZE_MAX);
    for (size_t i = 0; i < num_tasks; ++i) place[graph->order()[i]] = i;
    for (const GraphEdge& edge : graph->edges()) {
      ASSERT_LT(place[edge.from], place[edge.to]);
      ASSERT_GE(graph->rank_ns(edge.from), graph->rank_ns(edge.to) + costs[edge.from]);
    }
    for (TaskId id = 0; id < num_tasks; ++id) {
      uint64_t longest = 0;
      for (const TaskId next : graph->behind(id)) longest = std::max(longest, graph->rank_ns(next));
      ASSERT_EQ(graph->rank_ns(id), longest + costs[id]);
    }
  }
}

TEST(TaskGraphTest, WithOtherEdges) {
  const auto chain = TaskGraph::Make(Costing({1, 2, 3}), {{0, 1}, {1, 2}});
  ASSERT_TRUE(chain);
  const TaskGraph apart = chain->With({{0, 2}});
  EXPECT_EQ(apart.critical_path_ns(), 4);
  EXPECT_EQ(chain->critical_path_ns(), 6);
}

}  // namespace
}  // namespace tally::scheduler
