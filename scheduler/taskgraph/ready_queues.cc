#include "scheduler/taskgraph/ready_queues.h"

#include <algorithm>

namespace tally::scheduler {

void ReadyQueues::Push(DeviceId device, const TaskGraph& graph, TaskId task, bool is_pinned) {
  Queue& queue = queues_[device];
  // As many as there can be are no more than a graph's, so their sum wraps only where a cost is absurd.
  const uint64_t cost_ns = std::min(graph.task(task).cost_ns, UINT64_MAX / kMostTasks);
  (is_pinned ? queue.pinned : queue.free)
      .insert({graph.task(task).priority, UINT64_MAX - graph.rank_ns(task), task, cost_ns});
  queue.waiting_ns += cost_ns;
}

std::optional<TaskId> ReadyQueues::Take(DeviceId device) {
  Queue& queue = queues_[device];
  if (is_empty(device)) return std::nullopt;
  const bool is_pinned = queue.free.empty() || (!queue.pinned.empty() && *queue.pinned.begin() < *queue.free.begin());
  std::set<Entry>& from = is_pinned ? queue.pinned : queue.free;
  return Remove(queue, from, from.begin());
}

std::optional<TaskId> ReadyQueues::NextToSteal(DeviceId device) const {
  const Queue& queue = queues_[device];
  if (queue.free.empty()) return std::nullopt;
  return queue.free.begin()->task;
}

std::optional<TaskId> ReadyQueues::Steal(DeviceId device) {
  Queue& queue = queues_[device];
  if (queue.free.empty()) return std::nullopt;
  return Remove(queue, queue.free, queue.free.begin());
}

TaskId ReadyQueues::Remove(Queue& queue, std::set<Entry>& from, std::set<Entry>::iterator at) {
  const TaskId task = at->task;
  queue.waiting_ns -= at->cost_ns;
  from.erase(at);
  return task;
}

}  // namespace tally::scheduler
