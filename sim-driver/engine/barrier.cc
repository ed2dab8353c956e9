// Barriers of blocks (bar, barrier), warps (bar.warp.sync) and clusters (barrier.cluster).
#include "sim-driver/engine/barrier.h"

#include "sim-driver/engine/delay.h"
#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/location.h"
#include "sim-driver/engine/mbarrier.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

void MergeSplits(Warp& w) {
  // `current` is the running split; its entry is stale until it is saved, and then takes no part.
  bool is_stale = w.stop == StopReason::kNone || w.stop == StopReason::kGone;
  for (size_t k = 0; k < w.splits.size(); ++k) {
    Split& to = w.splits[k];
    if (k == w.current && is_stale) continue;
    if (to.state != SplitState::kRunnable) continue;
    for (size_t n = k + 1; n < w.splits.size();) {
      Split& from = w.splits[n];
      if ((n == w.current && is_stale) || from.state != SplitState::kRunnable || from.pc != to.pc ||
          from.frame != to.frame || from.record != to.record) {
        ++n;
        continue;
      }
      to.mask |= from.mask;
      if (w.current == n) {
        w.current = static_cast<uint32_t>(k);
      } else if (w.current > n) {
        --w.current;
      }
      w.splits.erase(w.splits.begin() + static_cast<ptrdiff_t>(n));
    }
  }
}

namespace {

enum class BarrierKind : uint32_t { kSync, kArrive, kRedPopc, kRedAnd, kRedOr };
constexpr uint32_t kAlignedFlag = 16;

// An explicit count is in threads, but whole warps arrive: a warp all of whose remaining lanes are here counts 32.
uint32_t CountArrived(const Block& block, const NamedBarrier& barrier) {
  uint32_t arrived = 0;
  for (const Warp& w : block.warps) {
    uint32_t lanes = barrier.arrived_lanes[w.index];
    if (lanes == 0) continue;
    arrived += (lanes & w.live) == w.live ? kLanes : static_cast<uint32_t>(std::popcount(lanes));
  }
  return arrived;
}

bool IsSatisfied(const Block& block, const NamedBarrier& barrier) {
  if (barrier.required != 0) return CountArrived(block, barrier) >= barrier.required;
  return barrier.arrived >= block.live_threads;
}

// Lets everybody go who waits at barrier `id`, if it is satisfied.
void TryComplete(Block& block, uint32_t id, Warp* running, const Instruction* running_instruction) {
  NamedBarrier& barrier = block.barriers[id];
  if (!barrier.is_open || !IsSatisfied(block, barrier)) return;
  for (Warp& w : block.warps) {
    if (barrier.arrived_lanes[w.index] == 0) continue;
    const Instruction* place = nullptr;
    for (Split& split : w.splits) {
      if (split.state != SplitState::kBarrier || split.barrier != id) continue;
      const Instruction& i = split.pc[-1];
      const bool is_reduction = (i.x & 15) >= static_cast<uint32_t>(BarrierKind::kRedPopc);
      if (block.cluster->grid->options.strict_aligned_barriers && ((i.x & kAlignedFlag) || is_reduction) &&
          place != nullptr && place != &i && running != nullptr) {
        RaiseFault(*running, *running_instruction, kLanes, kFaultLaunchTimeout,
                   "threads of one warp are at different places of an aligned barrier or a reduction");
        return;
      }
      place = &i;
      split.state = SplitState::kRunnable;
      auto kind = static_cast<BarrierKind>(i.x & 15);
      std::byte* registers = split.frame->registers;
      if (kind == BarrierKind::kRedPopc) {
        auto* d = reinterpret_cast<uint32_t*>(registers + i.d);
        for (uint32_t rest = split.mask; rest != 0; rest &= rest - 1) d[std::countr_zero(rest)] = barrier.reduction;
      } else if (kind != BarrierKind::kSync) {
        bool value =
            kind == BarrierKind::kRedOr ? barrier.reduction != 0 : barrier.reduction == barrier.reduction_lanes;
        auto* d = reinterpret_cast<uint32_t*>(registers + i.d);
        *d = (*d & ~split.mask) | (value ? split.mask : 0);
      }
    }
    MergeSplits(w);
  }
  barrier = NamedBarrier();
}

// a = which, b = count (if y), c = predicate, d = result; x = BarrierKind | kAlignedFlag.
void OpBarrier(Warp& w, const Instruction& i) {
  if (DelaysBefore(w, i)) return;
  auto kind = static_cast<BarrierKind>(i.x & 15);
  auto first = static_cast<uint32_t>(std::countr_zero(w.mask));
  const uint32_t* ids = Source<uint32_t>(w, i.a);
  const uint32_t* counts = i.y ? Source<uint32_t>(w, i.b) : nullptr;
  uint32_t id = ids[first];
  uint32_t count = counts ? counts[first] : 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    if (ids[lane] != id || (counts && counts[lane] != count))
      return RaiseFault(w, i, lane, kFaultIllegalInstruction, "threads of a warp name different barriers or counts");
  }
  if (id >= w.block->barriers.size())
    return RaiseFault(w, i, first, kFaultIllegalInstruction, Format("barrier {} of 16", id));
  if (counts && (count == 0 || count % kLanes != 0))
    return RaiseFault(w, i, first, kFaultIllegalInstruction,
                      Format("a barrier for {} threads, which is not whole warps", count));
  Block& block = *w.block;
  NamedBarrier& barrier = block.barriers[id];
  if (barrier.is_open && barrier.required != count)
    return RaiseFault(w, i, first, kFaultIllegalInstruction,
                      Format("barrier {} is waited for with {} threads by some and {} by others (0: all)", id,
                             barrier.required, count));
  barrier.is_open = true;
  barrier.required = count;
  barrier.arrived += static_cast<uint32_t>(std::popcount(w.mask));
  barrier.arrived_lanes[w.index] |= w.mask;
  if (kind >= BarrierKind::kRedPopc) {
    barrier.reduction += static_cast<uint32_t>(std::popcount(SourcePredicate(w, i.c) & w.mask));
    barrier.reduction_lanes += static_cast<uint32_t>(std::popcount(w.mask));
  }
  if (kind != BarrierKind::kArrive) {
    w.CountInstructions();
    w.splits[w.current] = {.mask = w.mask,
                           .state = SplitState::kBarrier,
                           .barrier = static_cast<uint8_t>(id),
                           .pc = w.pc,
                           .frame = w.frame,
                           .record = w.record};
    w.Stop(StopReason::kBlocked);
  }
  TryComplete(block, id, &w, &i);
}

bool DecodeClusterBarrier(Lowering& l);

bool DecodeBarrier(Lowering& l) {
  bool is_barrier = l.instruction().opcode == "barrier";
  size_t m = 0;
  if (l.Modifier(m) == "warp") return DecodeWarpBarrier(l);
  if (l.Modifier(m) == "cluster") return DecodeClusterBarrier(l);
  if (l.Modifier(m) == "cta") ++m;
  std::string_view what = l.Modifier(m);
  uint32_t flags = !is_barrier || l.Has("aligned") ? kAlignedFlag : 0;
  BarrierKind kind = BarrierKind::kSync;
  VirtualOperand d = kNoOperand;
  VirtualOperand c = kNoOperand;
  size_t next = 0;
  if (what == "arrive") {
    kind = BarrierKind::kArrive;
  } else if (what == "red") {
    kind = l.Has("popc") ? BarrierKind::kRedPopc : l.Has("and") ? BarrierKind::kRedAnd : BarrierKind::kRedOr;
    d = kind == BarrierKind::kRedPopc ? l.Define(0, ScalarType::kU32) : l.DefinePredicate(size_t{0});
    next = 1;
    c = l.UsePredicate(l.num_operands() - 1);
  } else if (what != "sync") {
    return false;
  }
  VirtualOperand a = l.Use(next, ScalarType::kU32);
  size_t last = l.num_operands() - (kind >= BarrierKind::kRedPopc ? 1 : 0);
  bool has_count = next + 1 < last;
  VirtualOperand b = has_count ? l.Use(next + 1, ScalarType::kU32) : kNoOperand;
  if (kind == BarrierKind::kArrive && !has_count) return l.Invalid("bar.arrive needs a thread count");
  Instruction& i = l.Emit(&OpBarrier, d, a, b, c).i;
  i.x = static_cast<uint32_t>(kind) | flags;
  i.y = has_count;
  return true;
}

// ---------------------------------------------------------------- clusters

uint32_t LiveThreads(const Cluster& cluster) {
  uint32_t live = 0;
  for (const Block& block : cluster.blocks) live += block.live_threads;
  return live;
}

void TryCompleteCluster(Cluster& cluster) {
  if (cluster.cluster_arrived == 0 || cluster.cluster_arrived < LiveThreads(cluster)) return;
  cluster.cluster_arrived = 0;
  ++cluster.cluster_phase;
  for (Block& block : cluster.blocks) {
    for (Warp& w : block.warps) {
      bool woken = false;
      for (Split& split : w.splits) {
        if (split.state != SplitState::kClusterBarrier) continue;
        split.state = SplitState::kRunnable;
        woken = true;
      }
      if (woken) MergeSplits(w);
    }
  }
}

void OpClusterArrive(Warp& w, const Instruction&) {
  Cluster& cluster = *w.block->cluster;
  ForLanes(w.mask, [&](uint32_t lane) { w.cluster_arrival_phase[lane] = cluster.cluster_phase; });
  cluster.cluster_arrived += static_cast<uint32_t>(std::popcount(w.mask));
  TryCompleteCluster(cluster);
}

void OpClusterWait(Warp& w, const Instruction& i) {
  if (DelaysBefore(w, i)) return;
  bool waits = false;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1)
    waits |= w.cluster_arrival_phase[static_cast<size_t>(std::countr_zero(rest))] == w.block->cluster->cluster_phase;
  if (!waits) return;
  w.CountInstructions();
  w.splits[w.current] = {
      .mask = w.mask, .state = SplitState::kClusterBarrier, .pc = w.pc, .frame = w.frame, .record = w.record};
  w.Stop(StopReason::kBlocked);
}

bool DecodeClusterBarrier(Lowering& l) {
  if (l.Modifier(1) == "arrive") {
    l.Emit(&OpClusterArrive);
  } else if (l.Modifier(1) == "wait") {
    l.Emit(&OpClusterWait);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void OnThreadsExited(Block& block) {
  for (uint32_t id = 0; id < block.barriers.size(); ++id)
    if (block.barriers[id].is_open) TryComplete(block, id, nullptr, nullptr);
  if (block.cluster->cluster_arrived != 0) TryCompleteCluster(*block.cluster);
}

std::string DescribeWaiting(const Cluster& cluster) {
  constexpr size_t kShown = 6;
  std::string text;
  size_t groups = 0;
  size_t hidden = 0;
  for (const Block& block : cluster.blocks) {
    for (const Warp& w : block.warps) {
      for (const Split& split : w.splits) {
        if (groups++ >= kShown) {
          hidden += static_cast<size_t>(std::popcount(split.mask));
          continue;
        }
        uint32_t thread = w.index * kLanes + static_cast<uint32_t>(std::countr_zero(split.mask));
        int others = std::popcount(split.mask) - 1;
        const bool is_at = split.state == SplitState::kWarpSync || split.state == SplitState::kWarpgroup ||
                           split.state == SplitState::kRegisters;
        const Instruction* at = is_at ? split.pc : split.pc - 1;
        text += Format("{}block ({},{},{}) {}{} at {}", text.empty() ? "" : "; ", block.index.x, block.index.y,
                       block.index.z, DescribeThread(block, thread),
                       others > 0 ? Format(" and {} more of its warp", others) : "",
                       DescribeInstruction(*cluster.grid, *split.frame->function, at));
        if (split.state == SplitState::kRegisters) text += DescribeRegisters(w);
        text += DescribeMBarrier(w, split);
      }
    }
  }
  if (hidden > 0) text += Format("; and {} more threads", hidden);
  return text;
}

void AddBarrierOpcodes(OpcodeTable& table) {
  table["barrier"] = {&DecodeBarrier, true};
  table["bar"] = {&DecodeBarrier, true};
}

}  // namespace tally::sim_driver
