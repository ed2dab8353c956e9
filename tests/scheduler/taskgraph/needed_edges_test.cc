#include "scheduler/taskgraph/needed_edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/scheduler/taskgraph/random_tasks.h"

namespace tally::scheduler {
namespace {

Task Touching(std::vector<Access> accesses) { return {.touches = {Extent::kSaid, std::move(accesses)}}; }
Access Of(AccessKind kind, uint64_t address) { return {*Box::Range(address, 1), kind}; }
Task Reading(uint64_t address) { return Touching({Of(AccessKind::kRead, address)}); }
Task Writing(uint64_t address) { return Touching({Of(AccessKind::kWrite, address)}); }

std::optional<std::vector<GraphEdge>> Needed(std::vector<Task> tasks, std::vector<GraphEdge> edges,
                                             const NeededEdgesLimits& limits = {}) {
  const auto graph = TaskGraph::Make(std::move(tasks), std::move(edges));
  auto needed = NeededEdges(*graph, *RegionMap::Make(graph->tasks()), limits);
  if (needed) std::ranges::sort(*needed);
  return needed;
}
std::optional<std::vector<GraphEdge>> OfStream(std::vector<Task> tasks, const NeededEdgesLimits& limits = {}) {
  const auto num_tasks = static_cast<uint32_t>(tasks.size());
  return Needed(std::move(tasks), InProgramOrder(num_tasks), limits);
}
using Edges = std::vector<GraphEdge>;

TEST(NeededEdgesTest, AllThreeHazardsStay) {
  EXPECT_EQ(OfStream({Writing(0), Reading(9), Reading(0)}), (Edges{{0, 2}})) << "read after write";
  EXPECT_EQ(OfStream({Reading(0), Reading(9), Writing(0)}), (Edges{{0, 2}})) << "write after read";
  EXPECT_EQ(OfStream({Writing(0), Reading(9), Writing(0)}), (Edges{{0, 2}})) << "write after write";
  EXPECT_EQ(OfStream({Reading(0), Reading(9), Reading(0)}), Edges());
}

TEST(NeededEdgesTest, WhatMayDoAnythingKeepsItsPlace) {
  EXPECT_EQ(OfStream({Writing(0), Writing(1), Task{}, Writing(2), Writing(3)}),
            (Edges{{0, 2}, {1, 2}, {2, 3}, {2, 4}}));
  Task reads_anything = Writing(5);
  reads_anything.touches.extent = Extent::kReadsAnything;
  EXPECT_EQ(OfStream({Writing(0), Reading(1), reads_anything, Reading(2), Writing(3)}), (Edges{{0, 2}, {2, 4}}));
}

TEST(NeededEdgesTest, ARaceStaysOne) {
  EXPECT_EQ(Needed({Writing(0), Writing(0), Writing(0), Reading(7)}, {{0, 2}, {1, 3}}), (Edges{{0, 2}}));
}

// 1 is behind 0 and takes its place, but not for 2, which has nothing to do with it.
TEST(NeededEdgesTest, WhoIsBesideTheLastWriterIsBehindTheOneBefore) {
  EXPECT_EQ(Needed({Writing(0), Writing(0), Reading(0), Reading(9)}, {{0, 1}, {0, 3}, {3, 2}}),
            (Edges{{0, 1}, {0, 2}}));
}

TEST(NeededEdgesTest, NothingIsToBeDone) {
  EXPECT_FALSE(OfStream({}));
  EXPECT_FALSE(OfStream({Writing(0), Reading(0), Writing(0)}));
  EXPECT_FALSE(OfStream({Task{}, Task{}}));
}

TEST(NeededEdgesTest, TooMuchIsLeftAsItIs) {
  const auto pairs = [](size_t count) {
    std::vector<Task> tasks;
    for (size_t i = 0; i < count; ++i) tasks.push_back(Writing(i % 2));
    return tasks;
  };
  EXPECT_TRUE(OfStream(pairs(kMostTasksCompared)));
  EXPECT_FALSE(OfStream(pairs(kMostTasksCompared + 1)));
  EXPECT_TRUE(OfStream(pairs(10), {.most_steps = 8}));
  EXPECT_FALSE(OfStream(pairs(10), {.most_steps = 7}));
  EXPECT_TRUE(OfStream(pairs(10), {.most_edges = 8}));
  EXPECT_FALSE(OfStream(pairs(10), {.most_edges = 7}));
}

// The new order is the least part of the old one in which all that conflicts is ordered.
TEST(NeededEdgesTest, RandomGraphs) {
  std::mt19937 random(4);
  size_t num_changed = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto num_tasks = static_cast<uint32_t>(1 + random() % 24);
    const std::vector<Task> tasks = RandomTasks(random, num_tasks, {.most_accesses = 2});
    const auto graph =
        TaskGraph::Make(tasks, round % 2 == 0 ? InProgramOrder(num_tasks) : RandomEdges(random, num_tasks, 3));
    const auto needed = NeededEdges(*graph, *RegionMap::Make(graph->tasks()));
    const Order had = OrderOf(*graph);
    const Order has = needed ? OrderOf(graph->With(*needed)) : had;
    num_changed += needed.has_value();
    Order least(num_tasks, std::vector<bool>(num_tasks));
    std::vector<GraphEdge> conflicts;
    for (TaskId a = 0; a < num_tasks; ++a) {
      for (TaskId b = 0; b < num_tasks; ++b) {
        const bool touch_memory = tasks[a].touches.extent == Extent::kAnything ||
                                  tasks[b].touches.extent == Extent::kAnything ||
                                  Conflict(FootprintOf(tasks[a]), FootprintOf(tasks[b]));
        if (had[a][b] && touch_memory) conflicts.push_back({a, b});
      }
    }
    ASSERT_EQ(has, OrderOf(graph->With(conflicts)));
    if (!needed) continue;
    for (size_t i = 0; i < needed->size(); ++i) {
      std::vector<GraphEdge> others = *needed;
      others.erase(others.begin() + static_cast<ptrdiff_t>(i));
      ASSERT_FALSE(OrderOf(graph->With(others))[(*needed)[i].from][(*needed)[i].to]) << "implied by others";
    }
  }
  EXPECT_GT(num_changed, 2000);
}

}  // namespace
}  // namespace tally::scheduler
