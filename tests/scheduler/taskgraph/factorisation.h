// Tiled LU (no pivots) and Cholesky (lower) as tasks in program order: which operation, and which tiles it reads and
// updates. The matrix is column-major, so tiles are boxes that interleave; those at the edges may be ragged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

enum class TileOperation : uint8_t { kGetrf, kPotrf, kTrsm, kSyrk, kGemm };

struct TiledMatrix {
  uint64_t address = 0;
  uint64_t size = 0;  // rows and columns
  uint64_t tile = 1;  // rows and columns of a tile
  uint64_t element_bytes = 8;
  uint64_t num_tiles() const { return (size + tile - 1) / tile; }
};

// Of an operation that updates rows x columns, with `depth` in between (0: in place).
using TileCost = std::function<uint64_t(TileOperation, uint64_t rows, uint64_t columns, uint64_t depth)>;

enum class Factorisation : uint8_t { kLu, kCholesky };
std::vector<Task> FactorisationTasks(Factorisation kind, const TiledMatrix& matrix, const TileCost& cost_ns);

}  // namespace tally::scheduler
