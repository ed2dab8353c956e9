// The seven shapes of graphs as work on tiles: a kernel whose result depends on the order of its inputs and of all that
// came before, and what the same tasks give one after another.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "scheduler/taskgraph/task_graph.h"
#include "server/executor/mirror/plan_steps.h"
#include "tests/scheduler/taskgraph/graph_shapes.h"

namespace tally::server {

// Tiles of 32 rows of 32 words, in matrices with rows of 16 KiB: 8 times 8 tiles fill 4 MiB, two granules. Cell n of a
// shape is a tile of the first matrix if n is even, of the second if not.
constexpr uint64_t kMatrixBytes = 4 << 20, kTilePitch = 16 << 10;
constexpr uint32_t kTileWords = 1024;

// PTX with the kernels `combine` (function 0) and `wait_for_word` (1): spins until the word at its parameter is not 0.
std::string TaskImage();
const std::vector<std::string>& TaskKernels();

struct TileTasks {
  std::vector<scheduler::Task> tasks;  // in program order, with boxes at the matrices' addresses
  std::vector<TaskWork> work;
};
TileTasks MakeTileTasks(scheduler::GraphShape shape, std::mt19937& random,
                        std::span<const MirroredAllocation> matrices);

// What the tasks leave in the matrices, one after another, computed on the CPU.
void RunInOrder(const TileTasks& tasks, std::span<const MirroredAllocation> matrices,
                std::vector<std::vector<uint32_t>>& words);

// In program order: an edge from each task to all later ones that touch what it writes, or write what it touches.
std::vector<scheduler::GraphEdge> TrueEdges(std::span<const scheduler::Task> tasks);

}  // namespace tally::server
