// What the host and the gate at the entry of a kernel agree on. A gate is a few instructions in front of a kernel's
// own: blocks that have not begun leave at once when their queue is stopped, and a later launch of the same grid runs
// exactly those. One agreement for PTX kernels (a pass), machine code (cubin-transforms), the executor and the tests.
//
// A queue is a row of launches that run one after another (a stream). Its blocks are numbered through all of them:
// block number = the launch's `base` + its linear index in the grid (x fastest); of launches with clusters, clusters
// are counted instead of blocks. Little-endian, as the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::device {

// One per queue, in device memory, kGateRecordAlignment-aligned. A block runs if its number is below `watermark`;
// before that is so it tries to raise it, by one 64-bit atomic maximum of {number + chunk, epoch} over {watermark,
// stopped}. Since `stopped` is the upper half, one store of epoch + 1 there ends all raising: from then on
// whether a block runs depends on its number and the record alone, so every warp may look for itself, and nothing about
// single blocks need be kept. What ran is the blocks below the watermark, without gaps.
struct GateRecord {
  uint32_t watermark;
  uint32_t stopped;  // equal to epoch: open. The host stores epoch + 1 to stop the queue
  uint32_t start;    // blocks with lower numbers ran in an earlier run and leave
  uint32_t epoch;    // number of stops so far; like `start` written only while no launch of the queue runs
};
static_assert(sizeof(GateRecord) == 16 && offsetof(GateRecord, stopped) == 4 && offsetof(GateRecord, start) == 8);
inline constexpr uint64_t kGateRecordAlignment = 128;

// Appended to a kernel's own parameters, at the next multiple of 16 bytes. No gate: all zeros.
struct GateParameters {
  uint64_t record;  // device address of the queue's GateRecord, with the flags below in its low bits
  uint32_t base;    // number of the launch's first block (or cluster)
  uint32_t chunk;   // by how much a block raises the watermark beyond itself, in blocks (or clusters); at least 1
};
static_assert(sizeof(GateParameters) == 16 && alignof(GateParameters) == 8);

inline constexpr uint64_t kGateClusters = 8;   // launched with clusters
inline constexpr uint64_t kGateOn = 16;        // always set, except in zeros
inline constexpr uint64_t kGateManyAxes = 32;  // the grid is not one-dimensional
static_assert((kGateClusters | kGateOn | kGateManyAxes) < kGateRecordAlignment);

// From a kernel's own parameter bytes to where GateParameters begin.
constexpr uint32_t GateOffset(uint32_t parameter_bytes) { return (parameter_bytes + 15) & ~uint32_t{15}; }

}  // namespace tally::device
