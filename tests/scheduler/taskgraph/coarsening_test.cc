#include "scheduler/taskgraph/coarsening.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/scheduler/taskgraph/random_graph.h"

namespace tally::scheduler {
namespace {

TaskGraph Graph(size_t num_tasks, std::vector<GraphEdge> edges, uint64_t cost_ns = 10) {
  std::vector<Task> tasks(num_tasks);
  for (Task& task : tasks) task.cost_ns = cost_ns;
  return *TaskGraph::Make(std::move(tasks), std::move(edges));
}

// Branches of equal length, side by side.
TaskGraph Branches(uint32_t num_branches, uint32_t length) {
  std::vector<GraphEdge> edges;
  for (uint32_t branch = 0; branch < num_branches; ++branch) {
    for (uint32_t i = 1; i < length; ++i) edges.push_back({branch * length + i - 1, branch * length + i});
  }
  return Graph(num_branches * length, edges);
}

// All that is promised of any coarsening.
void ExpectSound(const TaskGraph& graph, const CoarseningLimits& limits, const Coarsening& made) {
  ASSERT_EQ(made.partition_of.size(), graph.size());
  std::vector<size_t> seen_at(graph.size(), SIZE_MAX);
  size_t num_seen = 0;
  for (uint32_t number = 0; number < made.partitions.size(); ++number) {
    const Partition& partition = made.partitions[number];
    ASSERT_FALSE(partition.tasks.empty());
    ASSERT_LE(partition.tasks.size(), limits.most_tasks);
    uint64_t cost_ns = 0;
    bool is_pinned = false;
    for (const TaskId id : partition.tasks) {
      ASSERT_EQ(made.partition_of[id], number);
      ASSERT_EQ(seen_at[id], SIZE_MAX) << "in two partitions";
      seen_at[id] = num_seen++;
      cost_ns += graph.task(id).cost_ns;
      is_pinned |= graph.task(id).is_pinned;
    }
    ASSERT_EQ(partition.cost_ns, cost_ns);
    ASSERT_EQ(partition.is_pinned, is_pinned);
    if (partition.tasks.size() > 1) {
      ASSERT_LE(cost_ns, limits.target_ns);
    }
  }
  ASSERT_EQ(num_seen, graph.size());
  // Partition after partition, task after task is an order of the graph; so the partitions have no cycle.
  std::vector<GraphEdge> between;
  for (const GraphEdge& edge : graph.edges()) {
    ASSERT_LT(seen_at[edge.from], seen_at[edge.to]);
    if (made.partition_of[edge.from] != made.partition_of[edge.to]) {
      between.push_back({made.partition_of[edge.from], made.partition_of[edge.to]});
    }
  }
  std::ranges::sort(between);
  between.erase(std::ranges::unique(between).begin(), between.end());
  ASSERT_EQ(made.edges, between);
}

// By definition: no way between two tasks of a partition has a task of another on it.
void ExpectConvex(const TaskGraph& graph, const Coarsening& made) {
  const Order order = OrderOf(graph);
  for (TaskId a = 0; a < graph.size(); ++a) {
    for (TaskId b = 0; b < graph.size(); ++b) {
      if (!order[a][b] || made.partition_of[a] != made.partition_of[b]) continue;
      for (TaskId via = 0; via < graph.size(); ++via) {
        if (order[a][via] && order[via][b]) {
          ASSERT_EQ(made.partition_of[via], made.partition_of[a]);
        }
      }
    }
  }
}

TEST(CoarseningTest, RandomGraphs) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    const auto num_tasks = static_cast<uint32_t>(1 + random() % 40);
    std::vector<Task> tasks(num_tasks);
    for (Task& task : tasks) {
      task.cost_ns = random() % 30;
      task.is_pinned = random() % 9 == 0;
    }
    const auto graph = TaskGraph::Make(tasks, RandomEdges(random, num_tasks, 3));
    ASSERT_TRUE(graph);
    const uint64_t targets[] = {0, 1, 40, 150, UINT64_MAX};
    const CoarseningLimits limits{.shape = random() % 2 == 0 ? PartitionShape::kLevels : PartitionShape::kBranches,
                                  .most_tasks = 1 + random() % 12,
                                  .target_ns = targets[random() % 5]};
    const Coarsening made = Coarsen(*graph, limits);
    ASSERT_NO_FATAL_FAILURE(ExpectSound(*graph, limits, made));
    ASSERT_NO_FATAL_FAILURE(ExpectConvex(*graph, made));
    if (limits.shape == PartitionShape::kBranches) {
      for (TaskId id = 0; id < num_tasks; ++id) {
        ASSERT_EQ(made.partitions[made.partition_of[id]].is_pinned, tasks[id].is_pinned);
      }
    }
    const TaskGraph coarse = GraphOfPartitions(*graph, made);
    ASSERT_EQ(coarse.size(), made.partitions.size());
    ASSERT_EQ(coarse.total_ns(), graph->total_ns());
  }
}

TEST(CoarseningTest, LevelsHoldBranchesSideBySide) {
  const TaskGraph graph = Branches(8, 32);
  const Coarsening made = Coarsen(graph, {.shape = PartitionShape::kLevels, .most_tasks = 64});
  ASSERT_EQ(made.partitions.size(), 4);
  for (const Partition& partition : made.partitions) {
    std::vector<int> of_branch(8);
    for (const TaskId id : partition.tasks) ++of_branch[id / 32];
    EXPECT_EQ(of_branch, std::vector<int>(8, 8)) << "eight levels of all branches";
  }
}

TEST(CoarseningTest, BranchesStayApart) {
  const TaskGraph graph = Branches(8, 32);
  const Coarsening made = Coarsen(graph, {.shape = PartitionShape::kBranches, .most_tasks = 64, .target_ns = 160});
  ASSERT_EQ(made.partitions.size(), 16) << "two halves of each branch";
  EXPECT_EQ(made.edges.size(), 8);
  for (const Partition& partition : made.partitions) {
    for (const TaskId id : partition.tasks) EXPECT_EQ(id / 32, partition.tasks[0] / 32);
  }
}

// A fan of small tasks is not one launch each: those behind the same partition share one.
TEST(CoarseningTest, SmallTasksBehindOneAreGathered) {
  std::vector<GraphEdge> edges;
  for (uint32_t leaf = 1; leaf <= 1000; ++leaf) edges.push_back({0, leaf});
  const Coarsening made =
      Coarsen(Graph(1001, edges), {.shape = PartitionShape::kBranches, .most_tasks = 100, .target_ns = UINT64_MAX});
  EXPECT_EQ(made.partitions.size(), 11);
  EXPECT_EQ(made.edges.size(), 10) << "all behind the first, none behind one another";
}

TEST(CoarseningTest, ALongTaskIsAlone) {
  const TaskGraph graph =
      *TaskGraph::Make({{.touches = {}, .cost_ns = 5}, {.touches = {}, .cost_ns = 500}, {.touches = {}, .cost_ns = 5}},
                       {{0, 1}, {1, 2}});
  for (const PartitionShape shape : {PartitionShape::kLevels, PartitionShape::kBranches}) {
    EXPECT_EQ(Coarsen(graph, {.shape = shape, .target_ns = 100}).partitions.size(), 3);
    EXPECT_EQ(Coarsen(graph, {.shape = shape, .target_ns = 510}).partitions.size(), 1);
    EXPECT_EQ(Coarsen(graph, {.shape = shape, .target_ns = 0}).partitions.size(), 3);
  }
}

TEST(CoarseningTest, TheLargestGraphs) {
  std::mt19937 random(3);
  const auto graph = TaskGraph::Make(std::vector<Task>(kMostTasks), RandomEdges(random, kMostTasks, 8));
  ASSERT_TRUE(graph);
  for (const PartitionShape shape : {PartitionShape::kLevels, PartitionShape::kBranches}) {
    const CoarseningLimits limits{.shape = shape};
    ASSERT_NO_FATAL_FAILURE(ExpectSound(*graph, limits, Coarsen(*graph, limits)));
  }
  EXPECT_EQ(Coarsen(*graph, {}).partitions.size(), kMostTasks / 256);
}

Access Of(AccessKind kind, uint64_t address, uint64_t bytes) { return {*Box::Range(address, bytes), kind}; }

TEST(GraphOfPartitionsTest, TouchesWhatItsTasksTouch) {
  const auto known = [](std::vector<Access> accesses, bool overwrites = false) {
    return Task{.overwrites = overwrites, .touches = {Extent::kSaid, std::move(accesses)}};
  };
  const auto merged = [](std::vector<Task> tasks) {
    const auto graph = TaskGraph::Make(std::move(tasks), {});
    return GraphOfPartitions(*graph, Coarsen(*graph, {})).task(0);
  };
  const Task task = merged({known({Of(AccessKind::kRead, 0, 8), Of(AccessKind::kWrite, 64, 8)}, true),
                            known({Of(AccessKind::kWrite, 0, 8), Of(AccessKind::kWrite, 32, 8)})});
  EXPECT_EQ(task.touches.extent, Extent::kSaid);
  EXPECT_EQ(task.touches.accesses,
            (std::vector<Access>{Of(AccessKind::kReadWrite, 0, 8), Of(AccessKind::kReadWrite, 32, 8),
                                 Of(AccessKind::kWrite, 64, 8)}))
      << "only the first overwrites what it writes";
  EXPECT_TRUE(task.overwrites);
  EXPECT_EQ(merged({known({}), Task{}}).touches.extent, Extent::kAnything);
  std::vector<Task> many;
  for (uint64_t i = 0; i <= kMostPartitionAccesses; ++i) {
    if (i % 100 == 0) many.emplace_back(known({}));
    many.back().touches.accesses.push_back(Of(AccessKind::kRead, i * 64, 8));
  }
  EXPECT_EQ(merged(many).touches.extent, Extent::kAnything) << "too many pieces of memory";
  many.back().touches.accesses.pop_back();
  EXPECT_EQ(merged(many).touches.extent, Extent::kSaid);
}

}  // namespace
}  // namespace tally::scheduler
