#include "scheduler/taskgraph/task_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tally::scheduler {

Result<TaskGraph> TaskGraph::Make(std::vector<Task> tasks, std::vector<GraphEdge> edges) {
  if (tasks.size() > kMostTasks) {
    return Error(StatusCode::kResourceExhausted,
                 fmt::format("{} tasks, more than the {} that are planned", tasks.size(), kMostTasks));
  }
  if (edges.size() > kMostTaskEdges) {
    return Error(StatusCode::kResourceExhausted,
                 fmt::format("{} edges, more than the {} that are planned", edges.size(), kMostTaskEdges));
  }
  for (const GraphEdge& edge : edges) {
    if (edge.from >= tasks.size() || edge.to >= tasks.size()) {
      return Error(StatusCode::kInvalidArgument, fmt::format("edge {} -> {} names no task", edge.from, edge.to));
    }
  }
  TaskGraph graph;
  graph.tasks_ = std::move(tasks);
  graph.edges_ = std::move(edges);
  graph.Index();
  if (!graph.PutInOrder()) return Error(StatusCode::kInvalidArgument, "the edges form a cycle");
  graph.Rank();
  return graph;
}

TaskGraph TaskGraph::With(std::vector<GraphEdge> edges) const {
  TaskGraph graph;
  graph.tasks_ = tasks_;
  graph.edges_ = std::move(edges);
  graph.Index();
  CHECK(graph.PutInOrder());
  graph.Rank();
  return graph;
}

void TaskGraph::Index() {
  std::ranges::sort(edges_);
  edges_.erase(std::ranges::unique(edges_).begin(), edges_.end());
  before_begin_.assign(size() + 1, 0);
  behind_begin_.assign(size() + 1, 0);
  for (const GraphEdge& edge : edges_) {
    ++before_begin_[edge.to + 1];
    ++behind_begin_[edge.from + 1];
  }
  for (size_t i = 0; i < size(); ++i) {
    before_begin_[i + 1] += before_begin_[i];
    behind_begin_[i + 1] += behind_begin_[i];
  }
  before_.resize(edges_.size());
  behind_.resize(edges_.size());
  std::vector<uint32_t> next_before(before_begin_), next_behind(behind_begin_);
  for (const GraphEdge& edge : edges_) {
    before_[next_before[edge.to]++] = edge.from;
    behind_[next_behind[edge.from]++] = edge.to;
  }
}

bool TaskGraph::PutInOrder() {
  std::vector<uint32_t> num_waiting_for(size());
  order_.clear();
  order_.reserve(size());
  for (TaskId id = 0; id < size(); ++id) {
    num_waiting_for[id] = static_cast<uint32_t>(before(id).size());
    if (num_waiting_for[id] == 0) order_.push_back(id);
  }
  for (size_t i = 0; i < order_.size(); ++i) {
    for (const TaskId next : behind(order_[i])) {
      if (--num_waiting_for[next] == 0) order_.push_back(next);
    }
  }
  return order_.size() == size();
}

void TaskGraph::Rank() {
  rank_ns_.assign(size(), 0);
  critical_path_ns_ = 0;
  total_ns_ = 0;
  for (size_t i = size(); i-- > 0;) {
    const TaskId id = order_[i];
    uint64_t longest = 0;
    for (const TaskId next : behind(id)) longest = std::max(longest, rank_ns_[next]);
    rank_ns_[id] = SaturatedSum(longest, tasks_[id].cost_ns);
    critical_path_ns_ = std::max(critical_path_ns_, rank_ns_[id]);
    total_ns_ = SaturatedSum(total_ns_, tasks_[id].cost_ns);
  }
}

}  // namespace tally::scheduler
