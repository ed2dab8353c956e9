// The machine of the model: H200s of one host, all that is assumed of them in one table.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "scheduler/taskgraph/task_plan.h"
#include "tests/scheduler/taskgraph/factorisation.h"

namespace tally::taskgraph_model {

struct Figure {
  const char* name;
  double value;
  const char* unit;
  const char* source;
};
enum FigureIndex : size_t {
  kGemm,
  kTrsm,
  kSyrk,
  kGetrf,
  kPotrf,
  kHalfTile,
  kLink,
  kLinkLatency,
  kStart,
  kMemory,
  kNumFigures
};
// Rates are those of endless tiles: one of b rows has b / (b + half) of them.
constexpr Figure kFigures[kNumFigures] = {
    {"gemm", 51.1, "TFLOP/s", "so that LU 48k, T = 12, takes what it took as one graph on an H200"},
    {"trsm", 38.3, "TFLOP/s", "three quarters of gemm's, assumed"},
    {"syrk", 42.5, "TFLOP/s", "so that Cholesky 48k, T = 12, takes what it took as one graph on an H200"},
    {"getrf", 19.8, "TFLOP/s", "measured on an H200: 2.3 ms for a tile of 4,000"},
    {"potrf", 19.8, "TFLOP/s", "as getrf, assumed"},
    {"tile of half the rate", 260, "rows", "so that LU 24k and 12k take what they took as one graph"},
    {"link, each direction", 385, "GB/s", "measured between two H200s, both ways at once"},
    {"latency of a move", 10, "us", "assumed: a word there and back takes 1.3, measured; the rest is the launch"},
    {"start of a task", 5, "us", "assumed: the host learns of an end and launches, measured 3.7 us on an H200"},
    {"memory for copies", 120, "GB", "of an H200's 141"},
};

inline scheduler::PlanMachine MachineOf(size_t num_gpus) {
  return {.num_devices = num_gpus,
          .link_bytes_per_us = static_cast<uint64_t>(kFigures[kLink].value * 1e3),
          .link_latency_ns = static_cast<uint64_t>(kFigures[kLinkLatency].value * 1e3),
          .start_ns = static_cast<uint64_t>(kFigures[kStart].value * 1e3),
          .most_bytes = static_cast<uint64_t>(kFigures[kMemory].value * 1e9)};
}

inline uint64_t TileCostNs(scheduler::TileOperation operation, uint64_t rows, uint64_t columns, uint64_t depth) {
  using scheduler::TileOperation;
  struct Work {
    FigureIndex rate;
    double flops;
  };
  const auto m = static_cast<double>(rows), n = static_cast<double>(columns), k = static_cast<double>(depth);
  const Work work = [&]() -> Work {
    switch (operation) {
      case TileOperation::kGetrf:
        return {kGetrf, 2.0 / 3 * m * m * m};
      case TileOperation::kPotrf:
        return {kPotrf, 1.0 / 3 * m * m * m};
      case TileOperation::kTrsm:
        return {kTrsm, m * n * k};
      case TileOperation::kSyrk:
        return {kSyrk, m * n * k};
      case TileOperation::kGemm:
        return {kGemm, 2 * m * n * k};
    }
    return {kGemm, 0};
  }();
  const double side = std::cbrt(m * n * (k == 0 ? m : k));
  const double rate = kFigures[work.rate].value * side / (side + kFigures[kHalfTile].value);
  return static_cast<uint64_t>(work.flops / (rate * 1e12) * 1e9);
}

}  // namespace tally::taskgraph_model
