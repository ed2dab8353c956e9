// TaskGraph: the nodes of a submitted CUDA graph as tasks, and which of them must come behind which.
//
//      cost_ns    of a task: how long it runs alone on one GPU
//      rank_ns    of a task: the longest way from its begin to the end of the graph. The task of the greatest rank is
//                 the one that the end waits for most, so it goes first (longest path first).
//
//      [A 2]---->[B 5]---->[D 1]        rank of A 8, B 6, D 1
//          `---->[C 1]-------^          rank of C 2
//
// A value: made once, asked often. Everything is bounded before it is looked at, because a program says what is in it:
// a graph of a million nodes is refused in no time, and goes to the driver as it is. Making costs a step per task and
// edge. No clock. Source: MUSTARD (3.2 Algorithm 1, the graph's initialisation); the rank is HEFT's upward rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "scheduler/window/true_edges.h"

namespace tally::scheduler {

// By its place in the list that the graph was made of.
using TaskId = uint32_t;

constexpr size_t kMostTasks = 65'536;
constexpr size_t kMostTaskEdges = 1 << 20;

enum class TaskKind : uint8_t {
  kKernel,
  kCopy,
  kFill,
  // Memory, host, event, conditional nodes, child graphs: nothing is known but their place.
  kOther,
};

struct Task {
  TaskKind kind = TaskKind::kKernel;
  // Runs on the program's own GPU only: it has a printf, a texture, module variables, or is of the kind kOther.
  bool is_pinned = false;
  // Its boxes of kind kWrite are written to the last byte: copies, fills. A kernel's may keep some of what was there.
  bool overwrites = false;
  int32_t priority = 0;  // CUDA's, of a kernel node: the lower number goes first
  GraphNodeAccesses touches;
  uint64_t cost_ns = 0;
  // Scratch memory, which each GPU has for itself, by numbers: nobody wants what is there before or after. Two tasks
  // that have the same do not run on one GPU at a time, and nothing else of it matters.
  std::vector<uint32_t> scratch = {};
};

class TaskGraph {
 public:
  // Refused: kResourceExhausted if it is too large, kInvalidArgument if an edge names no task or there is a cycle.
  // An edge that is given twice counts once.
  static Result<TaskGraph> Make(std::vector<Task> tasks, std::vector<GraphEdge> edges);

  size_t size() const { return tasks_.size(); }
  const Task& task(TaskId id) const { return tasks_[id]; }
  std::span<const Task> tasks() const { return tasks_; }
  std::span<const GraphEdge> edges() const { return edges_; }  // sorted
  // Tasks with an edge to this one, and those that it has an edge to; ascending.
  std::span<const TaskId> before(TaskId id) const { return Row(before_, before_begin_, id); }
  std::span<const TaskId> behind(TaskId id) const { return Row(behind_, behind_begin_, id); }
  // Each behind all that come before it; level by level, so the same for the same graph.
  std::span<const TaskId> order() const { return order_; }
  uint64_t rank_ns(TaskId id) const { return rank_ns_[id]; }
  // With GPUs without number.
  uint64_t critical_path_ns() const { return critical_path_ns_; }
  // One task after another.
  uint64_t total_ns() const { return total_ns_; }
  // The same tasks in another order among them. Edges must name tasks and form no cycle.
  TaskGraph With(std::vector<GraphEdge> edges) const;

 private:
  TaskGraph() = default;
  static std::span<const TaskId> Row(const std::vector<TaskId>& all, const std::vector<uint32_t>& begin, TaskId id) {
    return {all.data() + begin[id], begin[id + 1] - begin[id]};
  }
  void Index();
  bool PutInOrder();
  void Rank();

  std::vector<Task> tasks_;
  std::vector<GraphEdge> edges_;
  // Rows of all tasks, one behind the other; row i begins at begin[i].
  std::vector<TaskId> before_, behind_;
  std::vector<uint32_t> before_begin_, behind_begin_;
  std::vector<TaskId> order_;
  std::vector<uint64_t> rank_ns_;
  uint64_t critical_path_ns_ = 0;
  uint64_t total_ns_ = 0;
};

// Costs are a program's own doing: they never wrap.
constexpr uint64_t SaturatedSum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

}  // namespace tally::scheduler
