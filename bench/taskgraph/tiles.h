// LU without pivots and Cholesky, tile by tile: the tasks, and by which tiles they depend on one another.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "bench/taskgraph/graph_shape.h"

namespace taskgraph {

enum class TileOp { kFactor, kSolveRight, kSolveLeft, kUpdate };

// Writes the tile (row, column); reads others of the same step.
struct TileTask {
  TileOp op;
  uint32_t step, row, column;
};

struct TiledFactorization {
  std::vector<TileTask> tasks;
  Shape shape;
};

// Of `tiles` x `tiles`. Each task comes behind the last writer of all that it touches, and behind the readers since of
// what it writes.
inline TiledFactorization Tiled(bool is_cholesky, uint32_t tiles) {
  TiledFactorization result;
  std::vector<int64_t> writer(size_t{tiles} * tiles, -1);
  std::vector<std::set<uint32_t>> readers(size_t{tiles} * tiles);
  const auto add = [&](TileOp op, uint32_t step, uint32_t row, uint32_t column,
                       const std::vector<std::pair<uint32_t, uint32_t>>& reads) {
    const auto task = static_cast<uint32_t>(result.tasks.size());
    const size_t written = size_t{row} * tiles + column;
    std::set<uint32_t> behind = readers[written];
    if (writer[written] >= 0) behind.insert(static_cast<uint32_t>(writer[written]));
    for (const auto& [r, c] : reads) {
      const size_t read = size_t{r} * tiles + c;
      if (writer[read] >= 0) behind.insert(static_cast<uint32_t>(writer[read]));
      readers[read].insert(task);
    }
    readers[written].clear();
    writer[written] = task;
    result.tasks.push_back({op, step, row, column});
    result.shape.emplace_back(behind.begin(), behind.end());
  };
  for (uint32_t k = 0; k < tiles; ++k) {
    add(TileOp::kFactor, k, k, k, {});
    for (uint32_t i = k + 1; i < tiles; ++i) add(TileOp::kSolveRight, k, i, k, {{k, k}});
    if (!is_cholesky) {
      for (uint32_t j = k + 1; j < tiles; ++j) add(TileOp::kSolveLeft, k, k, j, {{k, k}});
    }
    for (uint32_t i = k + 1; i < tiles; ++i) {
      for (uint32_t j = k + 1; j < (is_cholesky ? i + 1 : tiles); ++j) {
        if (is_cholesky) {
          add(TileOp::kUpdate, k, i, j, {{i, k}, {j, k}});
        } else {
          add(TileOp::kUpdate, k, i, j, {{i, k}, {k, j}});
        }
      }
    }
  }
  return result;
}

}  // namespace taskgraph
