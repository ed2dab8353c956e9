// RegionMap: the memory that the tasks of a graph touch, divided into regions. A task touches regions as a whole.
//
// What tasks touch are boxes, which overlap at will: a tile, its column, the matrix, a ragged tile at the edge. Regions
// do not overlap, so each can be in one place or another:
//
//      boxes   |######## whole matrix ########|        regions   |  0  |  2  | 4 |
//              |# tile #|                                        |  1  |  3  | 5 |
//              ragged tiles at the edges                         one per tile, and the matrix is all of them
//
// Boxes that share addresses, directly or by others between them, form a cluster. In a cluster whose boxes have one
// pitch, addresses are rows and columns, and the borders of all boxes divide the plane into cells; a cell that is in a
// box is a region. Plain ranges are divided so, too: into rows, if there is a pitch, else into pieces of one row.
//
// Where that is not possible (several pitches in one cluster) or would be too much, the cluster is one region that
// never leaves home. Nothing else would be safe: what lies between its boxes may be somebody else's. So cost and memory
// are bounded whatever a program says: kMostUses uses, and one more for each access.
//
// A value. Sorting the accesses, and a step per use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

using RegionId = uint32_t;

struct Region {
  Box box;  // all of it, and nothing else, is touched by some task; if it is home's: what lies around that
  bool is_home_only = false;
  uint64_t bytes() const { return box.rows() * box.row_bytes(); }
};

struct RegionUse {
  RegionId region = 0;
  bool reads = false;  // it needs what is there: it reads, or may leave some of it as it is
  bool writes = false;
  bool operator==(const RegionUse&) const = default;
};

class RegionMap {
 public:
  static constexpr size_t kMostAccesses = 1 << 18;
  struct Limits {
    size_t most_cells = 1 << 14;  // of a cluster
    size_t most_uses = 1 << 20;   // of all clusters that are divided
  };

  // kResourceExhausted if the tasks have more accesses than kMostAccesses: such a graph is the driver's.
  static Result<RegionMap> Make(std::span<const Task> tasks, const Limits& limits);
  static Result<RegionMap> Make(std::span<const Task> tasks) { return Make(tasks, Limits()); }

  size_t num_tasks() const { return begin_.size() - 1; }
  size_t size() const { return regions_.size(); }
  const Region& region(RegionId id) const { return regions_[id]; }
  // By region, each once. Of a task that may do anything: none.
  std::span<const RegionUse> uses(TaskId id) const { return {uses_.data() + begin_[id], begin_[id + 1] - begin_[id]}; }

 private:
  RegionMap() = default;

  std::vector<Region> regions_;
  std::vector<RegionUse> uses_;  // of all tasks, one behind the other
  std::vector<size_t> begin_;    // by task, and one behind the last
};

}  // namespace tally::scheduler
