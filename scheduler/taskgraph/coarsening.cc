#include "scheduler/taskgraph/coarsening.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace tally::scheduler {
namespace {

constexpr uint32_t kNoPartition = UINT32_MAX;

// An order in which a branch is followed to its end before the next one begins, the longest first.
std::vector<TaskId> BranchByBranch(const TaskGraph& graph) {
  const auto later_first = [&](TaskId a, TaskId b) {
    return std::pair(graph.rank_ns(a), b) < std::pair(graph.rank_ns(b), a);
  };
  std::vector<uint32_t> num_waiting_for(graph.size());
  std::vector<TaskId> ready, order, freed;
  for (TaskId id = 0; id < graph.size(); ++id) {
    num_waiting_for[id] = static_cast<uint32_t>(graph.before(id).size());
    if (num_waiting_for[id] == 0) ready.push_back(id);
  }
  std::ranges::sort(ready, later_first);
  order.reserve(graph.size());
  while (!ready.empty()) {
    const TaskId id = ready.back();
    ready.pop_back();
    order.push_back(id);
    freed.clear();
    for (const TaskId next : graph.behind(id)) {
      if (--num_waiting_for[next] == 0) freed.push_back(next);
    }
    std::ranges::sort(freed, later_first);
    ready.insert(ready.end(), freed.begin(), freed.end());
  }
  return order;
}

class Coarsener {
 public:
  Coarsener(const TaskGraph& graph, const CoarseningLimits& limits) : graph_(graph), limits_(limits) {
    made_.partition_of.assign(graph.size(), kNoPartition);
  }

  Coarsening Take() {
    if (limits_.shape == PartitionShape::kLevels) {
      for (const TaskId id : graph_.order()) Put(id, LastIfRoom(id));
    } else {
      for (const TaskId id : BranchByBranch(graph_)) Put(id, OfItsBranch(id));
    }
    Connect();
    return std::move(made_);
  }

 private:
  bool HasRoom(uint32_t partition, TaskId id) const {
    if (partition == kNoPartition) return false;
    const Partition& into = made_.partitions[partition];
    return into.tasks.size() < limits_.most_tasks &&
           SaturatedSum(into.cost_ns, graph_.task(id).cost_ns) <= limits_.target_ns && limits_.target_ns != 0;
  }

  // Its number is below none: it is the last.
  uint32_t LastIfRoom(TaskId id) const {
    if (made_.partitions.empty()) return kNoPartition;
    const auto last = static_cast<uint32_t>(made_.partitions.size() - 1);
    return HasRoom(last, id) ? last : kNoPartition;
  }

  // Where the last that it waits for is; else the newest partition that was begun behind the same one.
  uint32_t OfItsBranch(TaskId id) {
    uint32_t last = kNoPartition;
    for (const TaskId before : graph_.before(id)) {
      const uint32_t partition = made_.partition_of[before];
      last = last == kNoPartition ? partition : std::max(last, partition);
    }
    const bool is_pinned = graph_.task(id).is_pinned;
    const auto suits = [&](uint32_t partition) {
      return HasRoom(partition, id) && made_.partitions[partition].is_pinned == is_pinned;
    };
    if (suits(last)) return last;
    uint32_t& newest = NewestBehind(last, is_pinned);
    if (suits(newest)) return newest;
    newest = static_cast<uint32_t>(made_.partitions.size());
    return kNoPartition;
  }
  uint32_t& NewestBehind(uint32_t partition, bool is_pinned) {
    const size_t row = partition == kNoPartition ? 0 : partition + 1;
    if (row >= newest_behind_.size()) newest_behind_.resize(row + 1, {kNoPartition, kNoPartition});
    return newest_behind_[row][is_pinned ? 1 : 0];
  }

  // kNoPartition: a new one.
  void Put(TaskId id, uint32_t partition) {
    if (partition == kNoPartition) {
      partition = static_cast<uint32_t>(made_.partitions.size());
      made_.partitions.emplace_back();
    }
    Partition& into = made_.partitions[partition];
    into.tasks.push_back(id);
    into.cost_ns = SaturatedSum(into.cost_ns, graph_.task(id).cost_ns);
    into.is_pinned |= graph_.task(id).is_pinned;
    made_.partition_of[id] = partition;
  }

  void Connect() {
    for (const GraphEdge& edge : graph_.edges()) {
      const GraphEdge between{made_.partition_of[edge.from], made_.partition_of[edge.to]};
      if (between.from == between.to) continue;
      CHECK(between.from < between.to);
      made_.edges.push_back(between);
    }
    std::ranges::sort(made_.edges);
    made_.edges.erase(std::ranges::unique(made_.edges).begin(), made_.edges.end());
  }

  const TaskGraph& graph_;
  const CoarseningLimits& limits_;
  Coarsening made_;
  std::vector<std::array<uint32_t, 2>> newest_behind_;  // by partition + 1; of plain and of pinned tasks
};

void Widen(Extent* extent, Extent other) { *extent = std::max(*extent, other); }

// What a later task of the partition reads may be what an earlier one wrote; it counts as read all the same.
void Merge(Task& into, const Task& task) {
  into.is_pinned |= task.is_pinned;
  Widen(&into.touches.extent, task.touches.extent);
  for (Access access : task.touches.accesses) {
    // Another may look at it before: nothing is said to be overwritten as a whole.
    if (access.kind == AccessKind::kWrite && !task.overwrites) access.kind = AccessKind::kReadWrite;
    into.touches.accesses.push_back(access);
  }
}

void Compact(std::vector<Access>& accesses) {
  const auto key = [](const Access& access) {
    return std::tuple(access.box.begin(), access.box.end(), access.box.row_bytes(), access.box.pitch());
  };
  std::ranges::sort(accesses, {}, key);
  size_t kept = 0;
  for (size_t i = 0; i < accesses.size(); ++i) {
    if (kept > 0 && accesses[kept - 1].box == accesses[i].box) {
      if (accesses[kept - 1].kind != accesses[i].kind) accesses[kept - 1].kind = AccessKind::kReadWrite;
    } else {
      accesses[kept++] = accesses[i];
    }
  }
  accesses.erase(accesses.begin() + static_cast<ptrdiff_t>(kept), accesses.end());
}

Task TaskOf(const TaskGraph& graph, const Partition& partition) {
  if (partition.tasks.size() == 1) return graph.task(partition.tasks[0]);
  Task task{.overwrites = true, .touches = {.extent = Extent::kSaid, .accesses = {}}};
  for (const TaskId id : partition.tasks) {
    Merge(task, graph.task(id));
    if (task.touches.accesses.size() > 2 * kMostPartitionAccesses) Compact(task.touches.accesses);
    if (task.touches.accesses.size() > kMostPartitionAccesses) task.touches.extent = Extent::kAnything;
    if (task.touches.extent == Extent::kAnything) task.touches.accesses.clear();
  }
  Compact(task.touches.accesses);
  task.cost_ns = partition.cost_ns;
  return task;
}

}  // namespace

Coarsening Coarsen(const TaskGraph& graph, const CoarseningLimits& limits) { return Coarsener(graph, limits).Take(); }

TaskGraph GraphOfPartitions(const TaskGraph& graph, const Coarsening& coarsening) {
  std::vector<Task> tasks;
  tasks.reserve(coarsening.partitions.size());
  for (const Partition& partition : coarsening.partitions) tasks.push_back(TaskOf(graph, partition));
  Result<TaskGraph> made = TaskGraph::Make(std::move(tasks), coarsening.edges);
  CHECK(made.has_value());  // not more than there were, and no cycle
  return *std::move(made);
}

}  // namespace tally::scheduler
