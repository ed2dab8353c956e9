#include "tests/scheduler/taskgraph/factorisation.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace tally::scheduler {
namespace {

class Maker {
 public:
  Maker(const TiledMatrix& matrix, const TileCost& cost_ns) : matrix_(matrix), cost_ns_(cost_ns) {}

  std::vector<Task> Lu() {
    const uint64_t n = matrix_.num_tiles();
    for (uint64_t k = 0; k < n; ++k) {
      Add(TileOperation::kGetrf, {k, k}, {}, 0);
      for (uint64_t j = k + 1; j < n; ++j) Add(TileOperation::kTrsm, {k, j}, {{k, k}}, k);
      for (uint64_t i = k + 1; i < n; ++i) Add(TileOperation::kTrsm, {i, k}, {{k, k}}, k);
      for (uint64_t j = k + 1; j < n; ++j) {
        for (uint64_t i = k + 1; i < n; ++i) Add(TileOperation::kGemm, {i, j}, {{i, k}, {k, j}}, k);
      }
    }
    return std::move(tasks_);
  }
  std::vector<Task> Cholesky() {
    const uint64_t n = matrix_.num_tiles();
    for (uint64_t k = 0; k < n; ++k) {
      Add(TileOperation::kPotrf, {k, k}, {}, 0);
      for (uint64_t i = k + 1; i < n; ++i) Add(TileOperation::kTrsm, {i, k}, {{k, k}}, k);
      for (uint64_t j = k + 1; j < n; ++j) {
        Add(TileOperation::kSyrk, {j, j}, {{j, k}}, k);
        for (uint64_t i = j + 1; i < n; ++i) Add(TileOperation::kGemm, {i, j}, {{i, k}, {j, k}}, k);
      }
    }
    return std::move(tasks_);
  }

 private:
  struct Tile {
    uint64_t row, column;
  };
  uint64_t Side(uint64_t tile) const { return std::min(matrix_.tile, matrix_.size - tile * matrix_.tile); }
  Box BoxOf(const Tile& tile) const {
    const uint64_t first = tile.column * matrix_.tile * matrix_.size + tile.row * matrix_.tile;
    return *Box::Rows(matrix_.address + first * matrix_.element_bytes, Side(tile.row) * matrix_.element_bytes,
                      Side(tile.column), matrix_.size * matrix_.element_bytes);
  }
  void Add(TileOperation operation, const Tile& updated, std::initializer_list<Tile> read, uint64_t depth) {
    Task task;
    task.touches.extent = Extent::kSaid;
    for (const Tile& tile : read) task.touches.accesses.push_back({BoxOf(tile), AccessKind::kRead});
    task.touches.accesses.push_back({BoxOf(updated), AccessKind::kReadWrite});
    task.cost_ns = cost_ns_(operation, Side(updated.row), Side(updated.column), read.size() == 0 ? 0 : Side(depth));
    tasks_.push_back(std::move(task));
  }

  const TiledMatrix& matrix_;
  const TileCost& cost_ns_;
  std::vector<Task> tasks_;
};

}  // namespace

std::vector<Task> FactorisationTasks(Factorisation kind, const TiledMatrix& matrix, const TileCost& cost_ns) {
  Maker maker(matrix, cost_ns);
  return kind == Factorisation::kLu ? maker.Lu() : maker.Cholesky();
}

}  // namespace tally::scheduler
