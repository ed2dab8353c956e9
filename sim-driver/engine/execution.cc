#include "sim-driver/engine/execution.h"

#include <cstring>
#include <ctime>

#include "sim-driver/engine/barrier.h"
#include "sim-driver/engine/deadlock.h"
#include "sim-driver/engine/delivery.h"
#include "sim-driver/engine/frames.h"
#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/memory_view.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/reserved_shared.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

constexpr int32_t kWarpSlice = 4096;
// So many instructions while other lanes wait to rejoin, and those go on alone: a lane may be spinning for what one of
// them does next (the forward progress that hardware since Volta promises).
constexpr uint32_t kUnmergedLimit = 16384;

// Lets lanes that wait in records of the warp go on by themselves. False if there were none.
bool ReleaseWaitingLanes(Warp& w) {
  bool released = false;
  for (Record& record : w.records) {
    if (record.arrived == 0 || record.expected == 0) continue;
    w.splits.push_back({.mask = record.arrived, .pc = record.pc, .frame = record.frame, .record = record.parent});
    // The meeting point's OpConverge does nothing for them: their record is the parent now.
    record.expected &= ~record.arrived;
    record.arrived = 0;
    if (record.expected == 0) FreeRecord(w, &record);
    released = true;
  }
  return released;
}

// Runs the splits of a warp for up to `budget` instructions; returns how many it used.
int32_t RunWarp(Warp& w, int32_t budget, uint64_t now_ns) {
  int32_t used = 0;
  while (used < budget && !w.splits.empty()) {
    size_t count = w.splits.size();
    size_t pick = count;
    for (size_t k = 0; k < count; ++k) {
      size_t candidate = (w.current + k) % count;
      Split& split = w.splits[candidate];
      if (split.state == SplitState::kSleeping && split.wake_ns <= now_ns) split.state = SplitState::kRunnable;
      if (split.state == SplitState::kRunnable) {
        pick = candidate;
        break;
      }
    }
    if (pick == count) {
      if (!ReleaseWaitingLanes(w)) break;
      continue;
    }
    w.current = static_cast<uint32_t>(pick);
    const Split& split = w.splits[pick];
    w.pc = split.pc;
    w.mask = split.mask;
    w.record = split.record;
    w.SetFrame(split.frame);
    w.stop = StopReason::kNone;
    w.remaining = budget - used;
    w.counted_from = w.remaining;
    int32_t start = w.remaining;
    while (w.remaining > 0) {
      --w.remaining;
      const Instruction& i = *w.pc++;
      i.op(w, i);
    }
    int32_t left = w.stop == StopReason::kNone ? w.remaining : w.saved_remaining;
    w.CountInstructions();
    used += start - left;
    // Saves what the running split became; `current` is its index, others may have been added behind it.
    Split& self = w.splits[w.current];
    switch (w.stop) {
      case StopReason::kNone:
      case StopReason::kYield:
        self.pc = w.pc;
        self.mask = w.mask;
        self.record = w.record;
        self.frame = w.frame;
        w.current = (w.current + 1) % static_cast<uint32_t>(w.splits.size());
        break;
      case StopReason::kBlocked:
        break;  // saved by the operation
      case StopReason::kGone:
        w.splits.erase(w.splits.begin() + w.current);
        break;
      case StopReason::kFault:
        return used;
    }
    bool is_polling = w.stop == StopReason::kYield || w.stop == StopReason::kBlocked;
    if (w.stop == StopReason::kNone || is_polling) {
      w.unmerged_instructions += static_cast<uint32_t>(start - left) + (is_polling ? 256 : 0);
      if (w.unmerged_instructions > kUnmergedLimit) {
        w.unmerged_instructions = 0;
        if (HasWaitingLanes(w)) ReleaseWaitingLanes(w);
      }
    }
    if (w.stop == StopReason::kYield) return std::max(used, 1);
  }
  return used;
}

// So many rounds of turns between two looks whether anybody can still go on.
constexpr uint32_t kRoundsBetweenLooks = 1024;

void WaitForEver(Cluster& cluster) {
  cluster.fault =
      Fault{kFaultLaunchTimeout, Format("kernel {}: threads wait for ever, because no other thread of the block can "
                                        "still arrive: {}",
                                        cluster.grid->kernel.name, DescribeWaiting(cluster))};
}

size_t AlignUp(size_t value, size_t align) { return (value + align - 1) / align * align; }

}  // namespace

bool HasWaitingLanes(const Warp& w) {
  for (const Record& record : w.records)
    if (record.arrived != 0 && record.expected != 0) return true;
  return false;
}

void StepWarp(Warp& w) { RunWarp(w, 1, 0); }

uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void StartCluster(Cluster& cluster, Grid& grid, uint64_t index, uint32_t virtual_sm) {
  cluster.grid = &grid;
  cluster.index = index;
  cluster.virtual_sm = virtual_sm;
  cluster.local_stride_bytes = grid.local_stride_bytes;
  cluster.cluster_arrived = 0;
  cluster.cluster_phase = 0;
  cluster.fault.reset();
  cluster.deliveries.clear();
  cluster.rounds_unchecked = 0;
  cluster.schedule = Schedule(grid.request.schedule_seed, index);
  index = Schedule::Permute(index, grid.num_clusters, grid.request.schedule_seed);
  size_t local_bytes = AlignUp(size_t{grid.local_stride_bytes} * kLanes, 64);
  size_t shared_bytes = ReservedSharedStart(grid.shared_bytes) + kReservedSharedBytes;
  size_t per_block = shared_bytes + local_bytes * grid.warps_per_block;
  size_t needed = per_block * grid.blocks_per_cluster + 128;
  if (cluster.memory_bytes < needed) {
    // Pages of local memory that nobody touches cost nothing.
    cluster.memory.reset(static_cast<std::byte*>(std::malloc(needed)));
    if (!cluster.memory) {
      cluster.memory_bytes = 0;
      cluster.blocks.clear();
      cluster.fault = Fault{kFaultLaunchFailed, "out of host memory for a block"};
      return;
    }
    cluster.memory_bytes = needed;
  }
  auto start = (reinterpret_cast<uintptr_t>(cluster.memory.get()) + 127) & ~uintptr_t{127};
  auto* memory = reinterpret_cast<std::byte*>(start);
  const Dim3& shape = grid.cluster_shape;
  Dim3 clusters{grid.request.grid.x / shape.x, grid.request.grid.y / shape.y, grid.request.grid.z / shape.z};
  Dim3 at{static_cast<uint32_t>(index % clusters.x), static_cast<uint32_t>(index / clusters.x % clusters.y),
          static_cast<uint32_t>(index / clusters.x / clusters.y)};
  cluster.blocks.resize(grid.blocks_per_cluster);
  for (uint32_t rank = 0; rank < grid.blocks_per_cluster; ++rank) {
    Block& block = cluster.blocks[rank];
    block.cluster = &cluster;
    block.rank = rank;
    block.index = {at.x * shape.x + rank % shape.x, at.y * shape.y + rank / shape.x % shape.y,
                   at.z * shape.z + rank / shape.x / shape.y};
    block.live_threads = grid.threads_per_block;
    block.free_registers = 0;
    block.shared = memory;
    block.shared_bytes = grid.shared_bytes;
    std::memset(block.shared + ReservedSharedStart(grid.shared_bytes), 0, kReservedSharedBytes);
    memory += shared_bytes;
    if (grid.options.check_uninitialized_shared) block.shared_written.assign(grid.shared_bytes, 0);
    block.barriers.fill(NamedBarrier());
    block.warps.resize(grid.warps_per_block);
    for (uint32_t k = 0; k < grid.warps_per_block; ++k) {
      Warp& w = block.warps[k];
      while (!w.frames.empty()) ReleaseFrame(w, w.frames.back().get());
      w.records.clear();
      w.free_records.clear();
      w.splits.clear();
      w.block = &block;
      w.index = k;
      w.current = 0;
      w.unmerged_instructions = 0;
      w.thread_instructions = 0;
      w.polled_at = w.delayed_at = nullptr;
      w.product_groups = 0;
      w.registers = grid.kernel.entry_registers;
      w.delayed_turns = 0;
      w.local = memory;
      memory += local_bytes;
      uint32_t threads = std::min(kLanes, grid.threads_per_block - k * kLanes);
      w.live = threads == kLanes ? kFullMask : (1u << threads) - 1;
      w.bases[1] = const_cast<std::byte*>(grid.code.constant_base()) - 1;
      Frame* frame = EnterFrame(w, grid.function, nullptr, w.live);
      if (frame == nullptr) {
        cluster.fault = Fault{kFaultLaunchFailed, "no local memory for the kernel"};
        return;
      }
      w.splits.push_back({.mask = w.live, .pc = grid.function.instructions.data(), .frame = frame});
    }
  }
}

ClusterOutcome RunCluster(Cluster& cluster, MemoryView& memory, int64_t slice, uint64_t* thread_instructions) {
  if (cluster.fault) return ClusterOutcome::kFaulted;
  Grid& grid = *cluster.grid;
  for (Block& block : cluster.blocks)
    for (Warp& w : block.warps) w.memory = &memory;
  ClusterOutcome outcome = ClusterOutcome::kSlice;
  while (slice > 0 && outcome == ClusterOutcome::kSlice) {
    bool is_live = false;
    bool progressed = false;
    bool yields_only = true;
    uint64_t now_ns = 0;
    uint64_t wake_ns = ~uint64_t{0};
    for (Block& block : cluster.blocks) {
      if (block.live_threads == 0) continue;
      is_live = true;
      size_t first = cluster.schedule.Pick(block.warps.size());
      for (size_t turn = 0; turn < block.warps.size(); ++turn) {
        Warp& w = block.warps[(first + turn) % block.warps.size()];
        if (w.live == 0) continue;
        if (w.delayed_turns != 0) {
          --w.delayed_turns;
          progressed = true;
          yields_only = false;
          continue;
        }
        if (grid.is_stopping.load(std::memory_order_relaxed)) return ClusterOutcome::kStopped;
        bool sleeps = false;
        for (const Split& split : w.splits) sleeps |= split.state == SplitState::kSleeping;
        if (sleeps && now_ns == 0) now_ns = NowNs();
        w.stop = StopReason::kNone;
        if (!cluster.schedule.IsNatural()) w.current = cluster.schedule.Pick(w.splits.size());
        int32_t used = RunWarp(w, cluster.schedule.Turn(kWarpSlice), now_ns);
        slice -= std::max(used, 1);
        if (cluster.fault) {
          outcome = ClusterOutcome::kFaulted;
          goto count;
        }
        progressed |= used > 0;
        if (used > 0 && w.stop != StopReason::kYield) yields_only = false;
        for (const Split& split : w.splits) {
          if (split.state == SplitState::kSleeping) wake_ns = std::min(wake_ns, split.wake_ns);
        }
      }
    }
    if (!cluster.schedule.IsNatural()) {
      if (cluster.schedule.Pick(4) == 0) slice = 0;  // another block's turn
      if (!cluster.deliveries.empty()) {
        if (cluster.schedule.Pick(2) == 0) DeliverOne(cluster);
        progressed = true;
        yields_only = false;
      }
    }
    if (is_live && ++cluster.rounds_unchecked >= kRoundsBetweenLooks) {
      cluster.rounds_unchecked = 0;
      if (WaitsForEver(cluster)) WaitForEver(cluster);
      if (cluster.fault) {
        outcome = ClusterOutcome::kFaulted;
        break;
      }
    }
    if (!is_live) {
      outcome = ClusterOutcome::kFinished;
    } else if (!progressed && wake_ns != ~uint64_t{0}) {
      cluster.wake_ns = wake_ns;
      outcome = ClusterOutcome::kSleeping;
    } else if (!progressed) {
      bool any_runnable = false;  // woken by the last warp that ran
      for (Block& block : cluster.blocks)
        for (Warp& w : block.warps)
          for (const Split& split : w.splits) any_runnable |= split.state == SplitState::kRunnable;
      if (any_runnable) continue;
      bool still_live = false;
      for (Block& block : cluster.blocks) still_live |= block.live_threads != 0;
      if (!still_live) continue;
      WaitForEver(cluster);
      outcome = ClusterOutcome::kFaulted;
    } else if (yields_only) {
      outcome = ClusterOutcome::kPolling;  // for another block or the host
    }
  }
count:
  for (Block& block : cluster.blocks) {
    for (Warp& w : block.warps) {
      *thread_instructions += w.thread_instructions;
      w.thread_instructions = 0;
    }
  }
  return outcome;
}

}  // namespace tally::sim_driver
