// How a chain is run, for a number of rows, on a GPU: which form of the vertical kernel (stages/), how large, and how
// long that should take. Or a sentence that says why the library should do it.
//
//     resident   all weights stay in shared memory: each block reads them once
//     streamed   they pass through a ring, once for the tiles of a block
//
// Both by the products that a GPU has: wgmma on Hopper, mma.sync on all others from compute capability 8.0 on.
//
// Pure: shapes and a machine in, a plan out. Any thread.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "pipelines/plan/chain.h"

namespace tally::pipelines {

struct Machine {
  int compute_capability = 90;  // 10 * major + minor
  bool has_wgmma = true;
  int multiprocessors = 132;
  int shared_bytes = 232'448;          // that a block may have
  double clock_ghz = 1.755;            // of the multiprocessors, under load
  double memory_bytes_per_us = 2.6e6;  // a large copy, bytes read and written
  double l2_bytes_per_us = 5.5e6;
};

// A compiled kernel.
struct Variant {
  int warpgroups = 1;  // of a block, which compute
  bool resident = true;
  int stages = 1;     // of the ring; 1 if resident
  bool wgmma = true;  // or mma.sync

  bool operator==(const Variant&) const = default;
};

struct Plan {
  Variant variant;
  int grid = 0;
  double predicted_us = 0;
};

inline constexpr int kMostLayers = 32;
inline constexpr int kTileRows = 64;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kPanelColumns = 64;  // of weights, in one place of the ring
inline constexpr int kMostWidth = 256;    // of what a layer gives: one product of the matrix unit
inline constexpr int kMostInput = 512;
inline constexpr int kMostWideFirst = 1024;  // of the first layer, if the second is no wider than kMostWidth

// Bytes of shared memory of a block; what stages/common.cuh computes as kSharedBytes.
int SharedBytes(const Chain& chain, const Variant& variant);
// Threads of a block.
int Threads(const Variant& variant);
// Columns of a layer that a streamed kernel computes first: its products wait for nothing of the second half.
int FirstHalf(const Layer& layer);

// Why no plan is made, as a sentence without a full stop; nothing if one is.
std::expected<void, std::string> Check(const Chain& chain, const Machine& machine, int64_t max_rows);

// All variants that Choose may name for 1 to max_rows rows. `chain` has passed Check.
std::vector<Variant> VariantsFor(const Chain& chain, const Machine& machine, int64_t max_rows);
// The one that should be the quickest. rows >= 1.
Plan Choose(const Chain& chain, const Machine& machine, const std::vector<Variant>& variants, int64_t rows);

}  // namespace tally::pipelines
