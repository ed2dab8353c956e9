// What the host and a transformed kernel agree on: the hidden parameter that ptx-transforms appends to a kernel's own,
// and the memory that the parameter points to. One agreement for the passes (which print these offsets into PTX), for
// the executor (which fills the structs in) and for the tests.
//
// Sizes are fixed by assertions: the passes and the structs cannot drift apart unnoticed. Little-endian, as the GPU.
// Source: Tally, section 4 (slicing; preemption of persistent blocks), with an explicit control block instead of its
// global variables, so that any number of launches of one kernel can be in flight.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::device {

// Appended to the parameters of a kernel of the pass slice_grid. A slice is a box of the original grid: it is launched
// with the box's size as its grid, and every block adds `first_block` to its index. Block indices, grid sizes in
// blocks.
struct SliceParameters {
  uint32_t first_block[3];
  uint32_t grid[3];  // of the whole launch: what %nctaid gives
};
static_assert(sizeof(SliceParameters) == 24 && alignof(SliceParameters) == 4);

// One per launch of a kernel of the pass persistent_blocks, in device memory, zero before the launch's first run.
// Blocks are taken in the order of their linear index (x fastest), so a launch that yielded goes on where it stopped:
// the next run finds next_block as the last one left it. Persistent blocks may count it beyond the grid's blocks, by
// one each per run.
struct PersistentControl {
  uint32_t next_block;
  // Blocks that have run to their end. A persistent block adds its own when it leaves, after everything that its blocks
  // wrote is visible to the whole system: when this reaches the number of blocks of the grid the launch is complete,
  // and a stream may wait for just that.
  uint32_t completed_blocks;
};
static_assert(sizeof(PersistentControl) == 8);

// Appended to the parameters of a kernel of the pass persistent_blocks, which is launched with a one-dimensional grid
// of any number of persistent blocks. The number of blocks of `grid` plus the number of persistent blocks must be below
// 2^32.
struct PersistentParameters {
  uint64_t control;     // device address of a PersistentControl
  uint64_t yield_flag;  // device address of a u32, read before every block; not zero: take no further block. 0: none
  uint32_t grid[3];     // of the launch: what %nctaid gives
  uint32_t reserved;    // zero
};
static_assert(sizeof(PersistentParameters) == 32 && alignof(PersistentParameters) == 8);
static_assert(offsetof(PersistentParameters, yield_flag) == 8 && offsetof(PersistentParameters, grid) == 16);

// Dynamic shared memory that the launch of a kernel of the pass persistent_blocks needs on top of what the program
// asked for: thread 0 passes the index of the next block to the others through its last bytes. At the end, not in a
// variable of its own, because that would move the program's own dynamic memory, on whose place (swizzled tiles want
// multiples of 1024) kernels rely silently.
inline constexpr uint32_t kPersistentSharedBytes = 16;

}  // namespace tally::device
