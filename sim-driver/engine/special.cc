// Special registers, addresses of variables, nanosleep, clock.

#include <x86intrin.h>

#include "sim-driver/engine/execution.h"
#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/reserved_shared.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

void OpLocalAddress(Warp& w, const Instruction& i) {
  uint64_t* d = Target<uint64_t>(w, i.d);
  uint64_t value = uint64_t{w.frame->local_base} + static_cast<uint64_t>(i.imm);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = value; });
}

void OpVariableAddress(Warp& w, const Instruction& i) {
  uint64_t* d = Target<uint64_t>(w, i.d);
  uint64_t value = w.block->cluster->grid->request.variable_addresses[i.x] + static_cast<uint64_t>(i.imm);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = value; });
}

void OpDynamicSharedAddress(Warp& w, const Instruction& i) {
  uint64_t* d = Target<uint64_t>(w, i.d);
  uint64_t value = uint64_t{w.block->cluster->grid->kernel.dynamic_shared_offset_bytes} + static_cast<uint64_t>(i.imm);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = value; });
}

namespace {

enum class Special : uint32_t {
  kTid,
  kNtid,
  kCtaid,
  kNctaid,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kClock,
  kClockHigh,
  kGlobalTimer,
  kGlobalTimerHigh,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kEnvreg,
  kDynamicSharedBytes,
  kTotalSharedBytes,
  kAggregateSharedBytes,
  kIsExplicitCluster,
  kClusterid,
  kNclusterid,
  kClusterCtaid,
  kClusterNctaid,
  kClusterCtarank,
  kClusterNctarank,
  kReservedShared,
  kReservedSharedEnd,
  kZero,
};

uint32_t Component(const Dim3& dim, uint32_t component) {
  return component == 0 ? dim.x : component == 1 ? dim.y : component == 2 ? dim.z : 0;
}

// The value for a whole warp; those that differ by lane are made by OpSpecialLane.
uint64_t UniformValue(const Warp& w, Special special, uint32_t component) {
  const Block& block = *w.block;
  const Cluster& cluster = *block.cluster;
  const Grid& grid = *cluster.grid;
  const Dim3& dims = grid.request.grid;
  const Dim3& shape = grid.cluster_shape;
  auto divided = [](const Dim3& a, const Dim3& b) { return Dim3{a.x / b.x, a.y / b.y, a.z / b.z}; };
  switch (special) {
    case Special::kNtid:
      return Component(grid.request.block, component);
    case Special::kCtaid:
      return Component(block.index, component);
    case Special::kNctaid:
      return Component(dims, component);
    case Special::kWarpid:
      return w.index;
    case Special::kNwarpid:
      return MachineLimits::kMaxThreadsPerSm / MachineLimits::kWarpSize;
    case Special::kSmid:
      return cluster.virtual_sm;
    case Special::kNsmid:
      return MachineLimits::kNumSms;
    case Special::kGridid:
      return grid.id;
    case Special::kClock:
      return __rdtsc();
    case Special::kClockHigh:
      return __rdtsc() >> 32;
    case Special::kGlobalTimer:
      return NowNs();
    case Special::kGlobalTimerHigh:
      return NowNs() >> 32;
    case Special::kEnvreg: {
      // 1 and 2: high and low half of the address of the cooperative workspace.
      auto workspace = reinterpret_cast<uint64_t>(grid.workspace.get());
      return component == 1 ? workspace >> 32 : component == 2 ? workspace & 0xffffffff : 0;
    }
    case Special::kDynamicSharedBytes:
      return grid.request.dynamic_shared_bytes;
    case Special::kTotalSharedBytes:
    case Special::kAggregateSharedBytes:
      return grid.shared_bytes;
    case Special::kIsExplicitCluster:
      return grid.blocks_per_cluster > 1 || grid.kernel.required_cluster[0] != 0;
    case Special::kClusterid:
      return Component(divided(block.index, shape), component);
    case Special::kNclusterid:
      return Component(divided(dims, shape), component);
    case Special::kClusterCtaid:
      return Component({block.index.x % shape.x, block.index.y % shape.y, block.index.z % shape.z}, component);
    case Special::kClusterNctaid:
      return Component(shape, component);
    case Special::kClusterCtarank:
      return block.rank;
    case Special::kClusterNctarank:
      return grid.blocks_per_cluster;
    case Special::kReservedShared:
      return kReservedSharedOffset;
    case Special::kReservedSharedEnd:
      return kReservedSharedOffset + kReservedSharedBytes;
    default:
      return 0;
  }
}

template <typename T>
void OpSpecialUniform(Warp& w, const Instruction& i) {
  auto value = static_cast<T>(UniformValue(w, static_cast<Special>(i.x), i.y));
  T* d = Target<T>(w, i.d);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = value; });
}

void OpSpecialPredicate(Warp& w, const Instruction& i) {
  SetPredicate(w, i.d, UniformValue(w, static_cast<Special>(i.x), i.y) != 0 ? kFullMask : 0);
}

template <typename T>
void OpSpecialLane(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  const Dim3& dims = w.block->cluster->grid->request.block;
  uint32_t first = w.index * kLanes;
  auto fill = [&](auto value) { ForLanes(w.mask, [=](uint32_t l) { d[l] = static_cast<T>(value(l)); }); };
  switch (static_cast<Special>(i.x)) {
    case Special::kTid:
      if (i.y == 0 && dims.y * dims.z == 1) return fill([=](uint32_t l) { return first + l; });
      if (i.y == 0) return fill([=](uint32_t l) { return (first + l) % dims.x; });
      if (i.y == 1) return fill([=](uint32_t l) { return (first + l) / dims.x % dims.y; });
      if (i.y == 2) return fill([=](uint32_t l) { return (first + l) / dims.x / dims.y; });
      return fill([](uint32_t) { return 0u; });
    case Special::kLaneid:
      return fill([](uint32_t l) { return l; });
    case Special::kLanemaskEq:
      return fill([](uint32_t l) { return 1u << l; });
    case Special::kLanemaskLe:
      return fill([](uint32_t l) { return (2u << l) - 1; });
    case Special::kLanemaskLt:
      return fill([](uint32_t l) { return (1u << l) - 1; });
    case Special::kLanemaskGe:
      return fill([](uint32_t l) { return ~((1u << l) - 1); });
    default:
      return fill([](uint32_t l) { return ~((2u << l) - 1); });
  }
}

struct SpecialName {
  std::string_view name;
  Special special;
};
constexpr SpecialName kNames[] = {{"%tid", Special::kTid},
                                  {"%ntid", Special::kNtid},
                                  {"%ctaid", Special::kCtaid},
                                  {"%nctaid", Special::kNctaid},
                                  {"%laneid", Special::kLaneid},
                                  {"%warpid", Special::kWarpid},
                                  {"%nwarpid", Special::kNwarpid},
                                  {"%smid", Special::kSmid},
                                  {"%nsmid", Special::kNsmid},
                                  {"%gridid", Special::kGridid},
                                  {"%clock", Special::kClock},
                                  {"%clock64", Special::kClock},
                                  {"%clock_hi", Special::kClockHigh},
                                  {"%globaltimer", Special::kGlobalTimer},
                                  {"%globaltimer_lo", Special::kGlobalTimer},
                                  {"%globaltimer_hi", Special::kGlobalTimerHigh},
                                  {"%lanemask_eq", Special::kLanemaskEq},
                                  {"%lanemask_le", Special::kLanemaskLe},
                                  {"%lanemask_lt", Special::kLanemaskLt},
                                  {"%lanemask_ge", Special::kLanemaskGe},
                                  {"%lanemask_gt", Special::kLanemaskGt},
                                  {"%dynamic_smem_size", Special::kDynamicSharedBytes},
                                  {"%total_smem_size", Special::kTotalSharedBytes},
                                  {"%aggr_smem_size", Special::kAggregateSharedBytes},
                                  {"%is_explicit_cluster", Special::kIsExplicitCluster},
                                  {"%clusterid", Special::kClusterid},
                                  {"%nclusterid", Special::kNclusterid},
                                  {"%cluster_ctaid", Special::kClusterCtaid},
                                  {"%cluster_nctaid", Special::kClusterNctaid},
                                  {"%cluster_ctarank", Special::kClusterCtarank},
                                  {"%cluster_nctarank", Special::kClusterNctarank},
                                  {"%reserved_smem_offset_begin", Special::kReservedShared},
                                  {"%reserved_smem_offset_end", Special::kReservedSharedEnd},
                                  {"%reserved_smem_offset_cap", Special::kReservedSharedEnd},
                                  {"%reserved_smem_offset_0", Special::kReservedShared},
                                  {"%reserved_smem_offset_1", Special::kReservedShared}};

bool DiffersByLane(Special special) {
  return special == Special::kTid || special == Special::kLaneid ||
         (special >= Special::kLanemaskEq && special <= Special::kLanemaskGt);
}

void OpNanosleep(Warp& w, const Instruction& i) {
  const uint32_t* ns = Source<uint32_t>(w, i.a);
  uint32_t longest = 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) longest = std::max(longest, ns[std::countr_zero(rest)]);
  w.CountInstructions();
  w.splits[w.current] = {.mask = w.mask,
                         .state = SplitState::kSleeping,
                         .pc = w.pc,
                         .frame = w.frame,
                         .record = w.record,
                         .wake_ns = NowNs() + std::min(longest, 1'000'000u)};
  w.Stop(StopReason::kBlocked);
}

bool DecodeNanosleep(Lowering& l) {
  VirtualOperand a = l.Use(0, ScalarType::kU32);
  l.Emit(&OpNanosleep, kNoOperand, a);
  return true;
}

}  // namespace

VirtualOperand EmitSpecialRegister(Lowering& l, std::string_view name, char component, uint32_t width_bytes) {
  VirtualOperand d = l.Temporary(width_bytes);
  Special special = Special::kZero;
  bool is_known = false;
  uint32_t part = component == 0 ? 0 : component == 'w' ? 3 : static_cast<uint32_t>(component - 'x');
  for (const SpecialName& known : kNames) {
    if (known.name != name) continue;
    special = known.special;
    is_known = true;
  }
  if (name.starts_with("%envreg")) {
    special = Special::kEnvreg;
    is_known = true;
    part = name.size() == 8 ? static_cast<uint32_t>(name[7] - '0') : 99;
  }
  if (name.starts_with("%pm")) is_known = true;  // performance counters: zero
  if (!is_known) l.Unsupported(Format("special register {}", name));
  OpFunction op = nullptr;
  if (width_bytes == kPredicateClass) {
    op = &OpSpecialPredicate;
  } else if (DiffersByLane(special)) {
    op = width_bytes == 2   ? &OpSpecialLane<uint16_t>
         : width_bytes == 4 ? &OpSpecialLane<uint32_t>
                            : &OpSpecialLane<uint64_t>;
  } else {
    op = width_bytes == 2   ? &OpSpecialUniform<uint16_t>
         : width_bytes == 4 ? &OpSpecialUniform<uint32_t>
                            : &OpSpecialUniform<uint64_t>;
  }
  if (width_bytes > 8) l.Invalid("a special register has at most 64 bits");
  Instruction& i = l.Emit(op, d).i;
  i.x = static_cast<uint32_t>(special);
  i.y = part;
  return d;
}

void AddSpecialOpcodes(OpcodeTable& table) { table["nanosleep"] = {&DecodeNanosleep, true}; }

}  // namespace tally::sim_driver
