// The execution state of warps, blocks and clusters: what every operation works on.
//
// A warp is a set of splits, groups of lanes that share a program counter. A divergent branch makes two of one; a
// Record remembers which lanes should come together again, and where. Lanes arriving there wait in the record, not as a
// split. The rules are in README.md, "Divergence".
//
// Nothing here is thread-safe: a cluster is executed by one worker at a time.
#pragma once

#include <array>
#include <bit>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim-driver/engine/code.h"
#include "sim-driver/engine/instruction.h"
#include "sim-driver/engine/machine.h"
#include "sim-driver/engine/schedule.h"

namespace tally::sim_driver {

struct Block;
struct Cluster;
class Grid;
class MemoryView;
struct Record;

// One activation of a function for a group of lanes.
struct Frame {
  Frame* parent = nullptr;
  const FunctionCode* function = nullptr;
  Record* call_record = nullptr;      // where its lanes go back to; null for the kernel
  const Instruction* call = nullptr;  // the call in the parent, which says where return values go
  std::byte* registers = nullptr;
  std::byte* parameters = nullptr;  // kLanes * parameter_stride_bytes
  uint32_t local_base = 0;          // where its .local variables start, in each lane's local memory
  uint32_t local_top = 0;           // end of them, moved by alloca
  uint32_t live = 0;                // lanes that have neither returned nor exited
  uint32_t depth = 0;
  std::unique_ptr<std::byte[]> storage;
  size_t storage_bytes = 0;
};

// Lanes that shall continue together at `pc` in `frame`.
struct Record {
  uint32_t expected = 0;
  uint32_t arrived = 0;
  const Instruction* pc = nullptr;
  Frame* frame = nullptr;
  Record* parent = nullptr;
};

enum class SplitState : uint8_t { kRunnable, kBarrier, kWarpSync, kWarpgroup, kRegisters, kClusterBarrier, kSleeping };

struct Split {
  uint32_t mask = 0;
  SplitState state = SplitState::kRunnable;
  uint8_t barrier = 0;              // kBarrier: which
  uint32_t wait_mask = 0;           // kWarpSync: lanes to wait for
  const Instruction* pc = nullptr;  // next instruction; of a kWarpSync, kWarpgroup or kRegisters: the one that waits
  Frame* frame = nullptr;
  Record* record = nullptr;
  uint64_t wake_ns = 0;  // kSleeping
};

enum class StopReason : uint8_t {
  kNone,     // out of instructions for this slice
  kGone,     // the running split has no lanes left here: exited, or waiting in a record
  kBlocked,  // saved as blocked in `splits`
  kYield,    // wants others to run first
  kFault,
};

// A cp.async of one lane that has not arrived (async.cc).
struct LateCopy {
  std::byte* to = nullptr;
  uint32_t lane = 0, group = 0, size = 0;
  std::array<std::byte, 16> bytes{};
};

struct Warp {
  Warp() = default;
  Warp(Warp&&) noexcept = default;  // in vectors; nothing points at a warp while it does not run

  // Of the running split, in use while it runs.
  const Instruction* pc = nullptr;
  uint32_t mask = 0;
  int32_t remaining = 0;     // instructions until the slice ends; Stop makes it 0
  std::byte* bases[2] = {};  // registers of the frame; constants minus one (operands there have bit 0 set)
  Frame* frame = nullptr;
  Record* record = nullptr;
  Block* block = nullptr;
  MemoryView* memory = nullptr;
  StopReason stop = StopReason::kNone;
  int32_t saved_remaining = 0;
  int32_t counted_from = 0;  // `remaining` when thread instructions were last counted
  uint64_t thread_instructions = 0;
  uint32_t product_groups = 0;              // wgmma.commit_group so far
  uint32_t registers = 0;                   // that a thread has, as setmaxnreg counts; 0: it has no effect
  const Instruction* polled_at = nullptr;   // the wait that failed last
  const Instruction* delayed_at = nullptr;  // the wait that was put off (delay.h)
  uint32_t delayed_turns = 0;               // so many it still stays away
  uint32_t fruitless_polls = 0;             // strong loads and atomics in a row that found what they had found before

  uint32_t live = 0;                   // lanes that have not exited
  uint32_t index = 0;                  // in the block
  uint32_t current = 0;                // index in `splits` of the running one
  uint32_t unmerged_instructions = 0;  // executed while lanes wait in records
  std::vector<Split> splits;
  std::vector<Record*> free_records;
  std::deque<Record> records;
  std::vector<std::unique_ptr<Frame>> frames;       // in use
  std::vector<std::unique_ptr<Frame>> free_frames;  // kept for reuse
  std::byte* local = nullptr;                       // kLanes * Cluster::local_stride_bytes
  std::vector<LateCopy> late_copies;
  std::array<uint32_t, kLanes> copy_groups{};  // cp.async.commit_group so far
  std::array<uint32_t, kLanes>
      cluster_arrival_phase{};  // per lane: Cluster::cluster_phase at its barrier.cluster.arrive

  void Stop(StopReason reason) {
    stop = reason;
    saved_remaining = remaining;
    remaining = 0;
  }
  // After a load or atomic that a spinning thread would use: one that finds no change often gives way to others.
  void NotePoll(bool found_change) {
    constexpr uint32_t kPatience = 32;
    fruitless_polls = found_change ? 0 : fruitless_polls + 1;
    if (fruitless_polls < kPatience || stop != StopReason::kNone) return;
    fruitless_polls = 0;
    Stop(StopReason::kYield);
  }
  void CountInstructions() {
    int32_t now = stop == StopReason::kNone ? remaining : saved_remaining;
    thread_instructions += static_cast<uint64_t>(counted_from - now) * static_cast<uint32_t>(std::popcount(mask));
    counted_from = now;
  }
  void SetFrame(Frame* to) {
    frame = to;
    bases[0] = to->registers;
  }
};

struct NamedBarrier {
  uint32_t arrived = 0;    // threads, or rounded up to whole warps with a count
  uint32_t required = 0;   // 0: all threads of the block that have not exited
  uint32_t reduction = 0;  // bar.red: number of true predicates, and of lanes that gave one
  uint32_t reduction_lanes = 0;
  bool is_open = false;                      // somebody arrived in this phase
  std::array<uint32_t, 32> arrived_lanes{};  // per warp
};

struct Block {
  Cluster* cluster = nullptr;
  Dim3 index;         // %ctaid
  uint32_t rank = 0;  // in the cluster
  uint32_t live_threads = 0;
  uint32_t free_registers = 0;  // per lane of a warp: given back, and taken by nobody (register_pool.cc)
  std::byte* shared = nullptr;
  uint32_t shared_bytes = 0;
  std::vector<uint8_t> shared_written;  // per byte, when checking for uninitialised loads
  std::array<NamedBarrier, 16> barriers;
  std::vector<Warp> warps;
};

// A copy into shared memory that is under way (delivery.h).
struct Delivery {
  std::byte* to = nullptr;
  std::vector<std::byte> bytes;
  std::byte* barrier = nullptr;
};

// What is scheduled: the blocks of one cluster (one block where there are no clusters). Pooled and reused.
struct Cluster {
  Grid* grid = nullptr;
  uint64_t index = 0;  // which cluster of the grid
  std::vector<Block> blocks;
  uint32_t local_stride_bytes = 0;  // local memory of one thread
  uint32_t virtual_sm = 0;
  uint32_t cluster_arrived = 0;  // threads at barrier.cluster
  uint32_t cluster_phase = 0;
  std::unique_ptr<std::byte, void (*)(void*)> memory{nullptr, std::free};  // registers, local and shared memory
  size_t memory_bytes = 0;
  std::optional<Fault> fault;
  uint64_t wake_ns = 0;  // when everything in it sleeps
  Schedule schedule;     // LaunchRequest::schedule_seed
  std::vector<Delivery> deliveries;
  uint32_t rounds_unchecked = 0;  // of turns, since WaitsForEver was asked
};

}  // namespace tally::sim_driver
