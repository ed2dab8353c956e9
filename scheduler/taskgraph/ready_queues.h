// ReadyQueues: tasks that may run, by GPU: who goes next there, and what another GPU that has nothing to do may take.
//
// First CUDA's priority, then the longest way to the end of the graph, then the lower number: always the same order.
// Who steals takes what its owner would run next, as the end waits for that most. (Taking what it would run last was
// tried: factorisations on 8 GPUs of the model took up to a fifth longer.) Tasks that are pinned stay.
//
// A call takes the logarithm of what waits. Not thread-safe. No clock.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/taskgraph/region_directory.h"
#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

class ReadyQueues {
 public:
  explicit ReadyQueues(size_t num_devices) : queues_(num_devices) {}

  void Push(DeviceId device, const TaskGraph& graph, TaskId task, bool is_pinned);
  std::optional<TaskId> Take(DeviceId device);
  // What Steal would take.
  std::optional<TaskId> NextToSteal(DeviceId device) const;
  std::optional<TaskId> Steal(DeviceId device);
  // One after another, of all that waits there.
  uint64_t waiting_ns(DeviceId device) const { return queues_[device].waiting_ns; }
  bool is_empty(DeviceId device) const { return queues_[device].pinned.empty() && queues_[device].free.empty(); }

 private:
  struct Entry {
    int32_t priority = 0;
    uint64_t until_end_ns = 0;  // UINT64_MAX less the rank: the longest goes first
    TaskId task = 0;
    uint64_t cost_ns = 0;
    auto operator<=>(const Entry&) const = default;
  };
  struct Queue {
    std::set<Entry> pinned;
    std::set<Entry> free;
    uint64_t waiting_ns = 0;
  };
  static TaskId Remove(Queue& queue, std::set<Entry>& from, std::set<Entry>::iterator at);

  std::vector<Queue> queues_;
};

}  // namespace tally::scheduler
