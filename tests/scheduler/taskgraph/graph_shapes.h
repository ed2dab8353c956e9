// Seven shapes of graphs, 120 tasks each, by what tasks touch: in program order, a cell of 8 bytes a result. Results
// are put where earlier ones were, so all three hazards occur.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

enum class GraphShape : uint8_t { kChain, kForkJoin, kBranches, kReduction, kWavefront, kButterfly, kRandom };
constexpr int kNumGraphShapes = 7;
constexpr uint64_t kCellBytes = 8;
constexpr uint64_t kNumShapeTasks = 120;

class ShapeMaker {
 public:
  explicit ShapeMaker(std::mt19937& random) : random_(random) {}

  std::vector<Task> Make(GraphShape shape) {
    for (uint64_t i = 0; i < kNumShapeTasks; ++i) AddOf(shape, i);
    return std::move(tasks_);
  }

 private:
  void AddOf(GraphShape shape, uint64_t i) {
    switch (shape) {
      case GraphShape::kChain:
        return Add({i % 2}, (i + 1) % 2);
      case GraphShape::kForkJoin:  // 14 behind one, and one behind these
        if (i % 15 != 14) return Add({15}, i % 15);
        return Add({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, 15);
      case GraphShape::kBranches:  // 8 that have nothing to do with one another
        return Update({}, i % 8);
      case GraphShape::kReduction: {  // 8 leaves, then pairs; again and again
        const uint64_t at = i % 15;
        if (at < 8) return Add({15 + at}, at);
        return Add({2 * (at - 8), 2 * (at - 8) + 1}, at);
      }
      case GraphShape::kWavefront:  // 12 columns, each cell behind those to the left and above
        return Update({i % 12 == 0 ? 11 : i % 12 - 1}, i % 12);
      case GraphShape::kButterfly: {  // 8 wide, distances 1, 2, 4; two buffers
        const uint64_t level = i / 8, at = i % 8;
        return Add({level % 2 * 8 + at, level % 2 * 8 + (at ^ (1 << level % 3))}, (level + 1) % 2 * 8 + at);
      }
      case GraphShape::kRandom:
        return Update({random_() % 20, random_() % 20}, random_() % 20);
    }
  }
  void Add(std::vector<uint64_t> read, uint64_t written) { Say(std::move(read), written, AccessKind::kWrite); }
  void Update(std::vector<uint64_t> read, uint64_t written) { Say(std::move(read), written, AccessKind::kReadWrite); }
  void Say(std::vector<uint64_t> read, uint64_t written, AccessKind kind) {
    Task task;
    task.touches.extent = Extent::kSaid;
    task.cost_ns = 1'000 + random_() % 100'000;
    for (const uint64_t cell : read) task.touches.accesses.push_back({Cell(cell), AccessKind::kRead});
    task.touches.accesses.push_back({Cell(written), kind});
    tasks_.push_back(std::move(task));
  }
  static Box Cell(uint64_t cell) { return *Box::Range(cell * kCellBytes, kCellBytes); }

  std::mt19937& random_;
  std::vector<Task> tasks_;
};

}  // namespace tally::scheduler
