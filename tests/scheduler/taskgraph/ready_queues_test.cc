#include "scheduler/taskgraph/ready_queues.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::scheduler {
namespace {

// Ranks 10, 30, 20, 20, 5; the last has CUDA's higher priority.
TaskGraph Graph() {
  std::vector<Task> tasks(5);
  const uint64_t costs[] = {10, 30, 20, 20, 5};
  for (TaskId id = 0; id < tasks.size(); ++id) tasks[id].cost_ns = costs[id];
  tasks[4].priority = -1;
  return *TaskGraph::Make(tasks, {});
}

TEST(ReadyQueuesTest, PriorityThenTheLongestWayThenTheNumber) {
  const TaskGraph graph = Graph();
  ReadyQueues queues(2);
  for (TaskId id = 0; id < 5; ++id) queues.Push(1, graph, id, id == 2);
  EXPECT_TRUE(queues.is_empty(0));
  EXPECT_EQ(queues.waiting_ns(1), 85);
  std::vector<TaskId> taken;
  while (const auto task = queues.Take(1)) taken.push_back(*task);
  EXPECT_EQ(taken, (std::vector<TaskId>{4, 1, 2, 3, 0})) << "pinned ones among them";
  EXPECT_EQ(queues.waiting_ns(1), 0);
  EXPECT_FALSE(queues.Take(0));
}

TEST(ReadyQueuesTest, TheNextIsStolenUnlessPinned) {
  const TaskGraph graph = Graph();
  ReadyQueues queues(1);
  for (TaskId id = 0; id < 5; ++id) queues.Push(0, graph, id, id == 0);
  std::vector<TaskId> stolen;
  while (const auto next = queues.NextToSteal(0)) {
    stolen.push_back(*queues.Steal(0));
    EXPECT_EQ(stolen.back(), *next);
  }
  EXPECT_EQ(stolen, (std::vector<TaskId>{4, 1, 2, 3}));
  EXPECT_FALSE(queues.Steal(0));
  EXPECT_FALSE(queues.is_empty(0));
  EXPECT_EQ(queues.waiting_ns(0), 10);
  EXPECT_EQ(queues.Take(0), 0);
}

TEST(ReadyQueuesTest, CostsDoNotWrap) {
  const TaskGraph graph =
      *TaskGraph::Make({{.touches = {}, .cost_ns = UINT64_MAX}, {.touches = {}, .cost_ns = UINT64_MAX}}, {});
  ReadyQueues queues(1);
  queues.Push(0, graph, 0, false);
  const uint64_t one = queues.waiting_ns(0);
  queues.Push(0, graph, 1, false);
  EXPECT_GT(queues.waiting_ns(0), one);
}

}  // namespace
}  // namespace tally::scheduler
