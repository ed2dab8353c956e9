// Tasks that touch a memory of a few bytes at random: ranges, rows, whole allocations, ragged tiles; what each says,
// and which bytes those are.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/taskgraph/task_graph.h"
#include "tests/scheduler/taskgraph/random_graph.h"

namespace tally::scheduler {

constexpr uint64_t kMemoryBytes = 192;
using Bytes = std::bitset<kMemoryBytes>;

inline Bytes BytesOf(const Box& box) {
  Bytes bytes;
  for (uint64_t row = 0; row < box.rows(); ++row) {
    for (uint64_t i = 0; i < box.row_bytes(); ++i) bytes.set(box.begin() + row * box.pitch() + i);
  }
  return bytes;
}

struct Footprint {
  Bytes reads, writes;
};
// Of a task that may do more than it says: all bytes.
inline Footprint FootprintOf(const Task& task) {
  Footprint footprint;
  if (task.touches.extent != Extent::kSaid) footprint.reads.set();
  if (task.touches.extent == Extent::kAnything) footprint.writes.set();
  for (const Access& access : task.touches.accesses) {
    const Bytes bytes = BytesOf(access.box);
    if (Reads(access.kind)) footprint.reads |= bytes;
    if (Writes(access.kind)) footprint.writes |= bytes;
  }
  return footprint;
}
inline bool Conflict(const Footprint& a, const Footprint& b) {
  return (a.writes & (b.reads | b.writes)).any() || (b.writes & a.reads).any();
}

struct RandomTasksOptions {
  bool has_one_pitch = true;  // else any
  uint32_t percent_opaque = 4;
  uint32_t percent_pinned = 5;
  uint32_t most_accesses = 3;
};

// Three allocations of 64 bytes, each a matrix of rows of 12 bytes with a ragged edge.
inline Task RandomTask(std::mt19937& random, const RandomTasksOptions& options) {
  const auto below = [&](uint64_t n) { return random() % n; };
  Task task;
  task.kind = static_cast<TaskKind>(below(3));
  task.overwrites = task.kind != TaskKind::kKernel;
  task.is_pinned = below(100) < options.percent_pinned;
  task.cost_ns = 1 + below(50'000);
  task.touches.extent = Extent::kSaid;
  const uint64_t extent = below(200);
  if (extent < options.percent_opaque) task.touches.extent = Extent::kAnything;
  if (extent >= 200 - options.percent_opaque) task.touches.extent = Extent::kReadsAnything;
  if (task.touches.extent == Extent::kAnything) return task;
  for (uint64_t i = below(options.most_accesses + 1); i-- > 0;) {
    const uint64_t base = below(3) * 64;
    const auto kind = static_cast<AccessKind>(below(3));
    const uint64_t shape = below(8);
    if (shape == 0) {
      task.touches.accesses.push_back({*Box::Range(base, 64), kind});
    } else if (shape < 3) {
      const uint64_t first = below(64);
      task.touches.accesses.push_back({*Box::Range(base + first, 1 + below(64 - first)), kind});
    } else {
      const uint64_t pitch = options.has_one_pitch ? 12 : 7 + below(6);
      const uint64_t row = below(2) * 3, column = below(3) * 5;  // tiles of 3 rows by 5 bytes; the last of 2
      const uint64_t width = std::min<uint64_t>(5, pitch - std::min(column, pitch - 1));
      task.touches.accesses.push_back(
          {*Box::Rows(base + row * pitch + std::min(column, pitch - 1), width, row == 0 ? 3 : 2, pitch), kind});
    }
  }
  return task;
}

inline std::vector<Task> RandomTasks(std::mt19937& random, uint32_t num_tasks, const RandomTasksOptions& options) {
  std::vector<Task> tasks;
  for (uint32_t i = 0; i < num_tasks; ++i) tasks.push_back(RandomTask(random, options));
  return tasks;
}

// In program order, so all hazards are ordered: what one stream, captured, gives.
inline std::vector<GraphEdge> InProgramOrder(uint32_t num_tasks) {
  std::vector<GraphEdge> edges;
  for (uint32_t i = 1; i < num_tasks; ++i) edges.push_back({i - 1, i});
  return edges;
}

}  // namespace tally::scheduler
