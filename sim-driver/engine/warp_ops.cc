// Operations among the lanes of a warp: shfl, vote, match, redux, activemask, elect, bar.warp.sync.

#include "sim-driver/engine/barrier.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/warp_sync.h"

namespace tally::sim_driver {

void WakeWarpSync(Warp& w) {
  // They look again; the instruction is executed once more by each.
  for (size_t k = 0; k < w.splits.size(); ++k)
    if (w.splits[k].state == SplitState::kWarpSync) w.splits[k].state = SplitState::kRunnable;
}

namespace {

// Lanes named in the masks (operand `masks`) of the active lanes that have not exited must be here too. Runs `body`
// with w.mask widened to all that came, or blocks the split until they come.
template <typename Body>
void WithNamedLanes(Warp& w, const Instruction& i, uint32_t masks, bool any_place, Body body) {
  const uint32_t* mask = Source<uint32_t>(w, masks);
  uint32_t needed = 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) needed |= mask[std::countr_zero(rest)];
  WithLanes(w, i, needed, any_place, body);
}

// ---------------------------------------------------------------- shfl

enum class ShuffleMode : uint32_t { kUp, kDown, kButterfly, kIndex };

// d|e = shfl(a, b, c), member mask f.
template <ShuffleMode kMode>
void OpShuffle(Warp& w, const Instruction& i) {
  WithNamedLanes(w, i, i.f, false, [&] {
    const uint32_t* a = Source<uint32_t>(w, i.a);
    const uint32_t* b = Source<uint32_t>(w, i.b);
    const uint32_t* c = Source<uint32_t>(w, i.c);
    uint32_t values[kLanes];
    uint32_t valid = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      uint32_t offset = b[lane] & 31;
      uint32_t clamp = c[lane] & 31;
      uint32_t segment = (c[lane] >> 8) & 31;
      uint32_t max_lane = (lane & segment) | (clamp & ~segment);
      uint32_t min_lane = lane & segment;
      int32_t from = 0;
      bool inside = false;
      if constexpr (kMode == ShuffleMode::kUp) {
        from = static_cast<int32_t>(lane) - static_cast<int32_t>(offset);
        inside = from >= static_cast<int32_t>(max_lane);
      } else if constexpr (kMode == ShuffleMode::kDown) {
        from = static_cast<int32_t>(lane + offset);
        inside = from <= static_cast<int32_t>(max_lane);
      } else if constexpr (kMode == ShuffleMode::kButterfly) {
        from = static_cast<int32_t>(lane ^ offset);
        inside = from <= static_cast<int32_t>(max_lane);
      } else {
        from = static_cast<int32_t>(min_lane | (offset & ~segment));
        inside = from <= static_cast<int32_t>(max_lane);
      }
      values[lane] = a[inside ? from & 31 : lane];
      if (inside) valid |= 1u << lane;
    }
    uint32_t* d = Target<uint32_t>(w, i.d);
    ForLanes(w.mask, [&](uint32_t lane) { d[lane] = values[lane]; });
    SetPredicate(w, i.e, valid);
  });
}

bool DecodeShuffle(Lowering& l) {
  if (l.Modifier(0) != "sync") return false;  // shfl without sync is gone since sm_70
  std::string_view mode = l.Modifier(1);
  OpFunction op = mode == "up"     ? &OpShuffle<ShuffleMode::kUp>
                  : mode == "down" ? &OpShuffle<ShuffleMode::kDown>
                  : mode == "bfly" ? &OpShuffle<ShuffleMode::kButterfly>
                  : mode == "idx"  ? &OpShuffle<ShuffleMode::kIndex>
                                   : nullptr;
  if (op == nullptr) return false;
  const ptx::Operand& to = l.operand(0);
  bool is_pair = to.kind == OperandKind::kPair && to.parts.size() == 2;
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  VirtualOperand c = l.Use(3, ScalarType::kB32);
  VirtualOperand mask = l.Use(4, ScalarType::kB32);
  VirtualOperand d = l.Define(is_pair ? to.parts[0] : to, ScalarType::kB32);
  VirtualOperand e = is_pair ? l.DefinePredicate(to.parts[1]) : l.Temporary(kPredicateClass);
  Instruction& i = l.Emit(op, d, a, b, c).i;
  i.e = e;
  i.f = mask;
  return true;
}

// ---------------------------------------------------------------- vote, match, redux

enum class VoteMode : uint32_t { kAll, kAny, kUniform, kBallot };

template <VoteMode kMode>
void OpVote(Warp& w, const Instruction& i) {
  WithNamedLanes(w, i, i.f, false, [&] {
    const uint32_t* masks = Source<uint32_t>(w, i.f);
    uint32_t votes = SourcePredicate(w, i.a);
    uint32_t* d = Target<uint32_t>(w, i.d);
    uint32_t result = 0;
    for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
      auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      uint32_t voters = masks[lane] & w.mask;
      uint32_t yes = votes & voters;
      bool value = kMode == VoteMode::kAll       ? yes == voters
                   : kMode == VoteMode::kAny     ? yes != 0
                   : kMode == VoteMode::kUniform ? yes == 0 || yes == voters
                                                 : false;
      if constexpr (kMode == VoteMode::kBallot) {
        d[lane] = yes;
      } else {
        result |= static_cast<uint32_t>(value) << lane;
      }
    }
    if constexpr (kMode != VoteMode::kBallot) SetPredicate(w, i.d, result);
  });
}

bool DecodeVote(Lowering& l) {
  if (l.Modifier(0) != "sync") return false;
  std::string_view mode = l.Modifier(1);
  bool is_ballot = mode == "ballot";
  OpFunction op = mode == "all"   ? &OpVote<VoteMode::kAll>
                  : mode == "any" ? &OpVote<VoteMode::kAny>
                  : mode == "uni" ? &OpVote<VoteMode::kUniform>
                  : is_ballot     ? &OpVote<VoteMode::kBallot>
                                  : nullptr;
  if (op == nullptr) return false;
  VirtualOperand a = l.UsePredicate(size_t{1});
  VirtualOperand mask = l.Use(2, ScalarType::kB32);
  VirtualOperand d = is_ballot ? l.Define(0, ScalarType::kB32) : l.DefinePredicate(size_t{0});
  l.Emit(op, d, a).i.f = mask;
  return true;
}

template <typename T, bool kAll>
void OpMatch(Warp& w, const Instruction& i) {
  WithNamedLanes(w, i, i.f, false, [&] {
    const uint32_t* masks = Source<uint32_t>(w, i.f);
    const T* a = Source<T>(w, i.a);
    uint32_t results[kLanes] = {};
    uint32_t matched = 0;
    for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
      auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      uint32_t peers = masks[lane] & w.mask;
      uint32_t same = 0;
      for (uint32_t others = peers; others != 0; others &= others - 1) {
        auto other = static_cast<uint32_t>(std::countr_zero(others));
        if (a[other] == a[lane]) same |= 1u << other;
      }
      results[lane] = !kAll || same == peers ? same : 0;
      if (same == peers) matched |= 1u << lane;
    }
    uint32_t* d = Target<uint32_t>(w, i.d);
    ForLanes(w.mask, [&](uint32_t lane) { d[lane] = results[lane]; });
    if constexpr (kAll) SetPredicate(w, i.e, matched);
  });
}

bool DecodeMatch(Lowering& l) {
  bool is_all = l.Modifier(0) == "all";
  ScalarType type = l.Type();
  uint32_t bytes = TypeBytes(type);
  if (bytes != 4 && bytes != 8) return false;
  const ptx::Operand& to = l.operand(0);
  bool is_pair = to.kind == OperandKind::kPair && to.parts.size() == 2;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand mask = l.Use(2, ScalarType::kB32);
  VirtualOperand d = l.Define(is_pair ? to.parts[0] : to, ScalarType::kB32);
  VirtualOperand e = is_pair ? l.DefinePredicate(to.parts[1]) : l.Temporary(kPredicateClass);
  OpFunction op = bytes == 4 ? (is_all ? &OpMatch<uint32_t, true> : &OpMatch<uint32_t, false>)
                             : (is_all ? &OpMatch<uint64_t, true> : &OpMatch<uint64_t, false>);
  Instruction& i = l.Emit(op, d, a).i;
  i.e = e;
  i.f = mask;
  return true;
}

struct ReduceAdd {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
};
struct ReduceMin {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct ReduceMax {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct ReduceAnd {
  template <typename T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct ReduceOr {
  template <typename T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct ReduceXor {
  template <typename T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};

template <typename T, auto kReduce>
void OpRedux(Warp& w, const Instruction& i) {
  WithNamedLanes(w, i, i.f, false, [&] {
    const uint32_t* masks = Source<uint32_t>(w, i.f);
    const T* a = Source<T>(w, i.a);
    T results[kLanes] = {};
    for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
      auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      uint32_t peers = masks[lane] & w.mask;
      T sum = a[lane];
      for (uint32_t others = peers & ~(1u << lane); others != 0; others &= others - 1)
        sum = kReduce(sum, a[std::countr_zero(others)]);
      results[lane] = sum;
    }
    T* d = Target<T>(w, i.d);
    ForLanes(w.mask, [&](uint32_t lane) { d[lane] = results[lane]; });
  });
}

bool DecodeRedux(Lowering& l) {
  std::string_view what = l.Modifier(1);
  ScalarType type = l.Type();
  bool is_signed = type == ScalarType::kS32;
  OpFunction op = what == "add"   ? &OpRedux<uint32_t, ReduceAdd{}>
                  : what == "and" ? &OpRedux<uint32_t, ReduceAnd{}>
                  : what == "or"  ? &OpRedux<uint32_t, ReduceOr{}>
                  : what == "xor" ? &OpRedux<uint32_t, ReduceXor{}>
                  : what == "min" ? (is_signed ? &OpRedux<int32_t, ReduceMin{}> : &OpRedux<uint32_t, ReduceMin{}>)
                  : what == "max" ? (is_signed ? &OpRedux<int32_t, ReduceMax{}> : &OpRedux<uint32_t, ReduceMax{}>)
                                  : nullptr;
  if (op == nullptr || TypeBytes(type) != 4 || IsFloat(type)) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand mask = l.Use(2, ScalarType::kB32);
  l.Emit(op, l.Define(0, type), a).i.f = mask;
  return true;
}

// ---------------------------------------------------------------- the rest

void OpActiveMask(Warp& w, const Instruction& i) {
  uint32_t* d = Target<uint32_t>(w, i.d);
  ForLanes(w.mask, [d, mask = w.mask](uint32_t lane) { d[lane] = mask; });
}

bool DecodeActiveMask(Lowering& l) {
  l.Emit(&OpActiveMask, l.Define(0, ScalarType::kB32));
  return true;
}

void OpElect(Warp& w, const Instruction& i) {
  WithNamedLanes(w, i, i.f, false, [&] {
    const uint32_t* masks = Source<uint32_t>(w, i.f);
    uint32_t* d = Target<uint32_t>(w, i.d);
    uint32_t elected = 0;
    for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
      auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      uint32_t peers = masks[lane] & w.mask;
      uint32_t leader = peers == 0 ? lane : static_cast<uint32_t>(std::countr_zero(peers));
      d[lane] = leader;
      if (leader == lane) elected |= 1u << lane;
    }
    SetPredicate(w, i.e, elected);
  });
}

bool DecodeElect(Lowering& l) {
  const ptx::Operand& to = l.operand(0);
  if (to.kind != OperandKind::kPair || to.parts.size() != 2) return l.Invalid("elect.sync writes d|p");
  VirtualOperand mask = l.Use(1, ScalarType::kB32);
  Instruction& i = l.Emit(&OpElect, l.Define(to.parts[0], ScalarType::kB32)).i;
  i.f = mask;
  VirtualOperand e = l.DefinePredicate(to.parts[1]);
  l.instructions.back().i.e = e;
  return true;
}

void OpWarpBarrier(Warp& w, const Instruction& i) {
  WithNamedLanes(w, i, i.f, true, [] {});
}

}  // namespace

bool DecodeWarpBarrier(Lowering& l) {
  VirtualOperand mask = l.Use(0, ScalarType::kB32);
  l.Emit(&OpWarpBarrier).i.f = mask;
  return true;
}

void AddWarpOpcodes(OpcodeTable& table) {
  table["shfl"] = {&DecodeShuffle, true};
  table["vote"] = {&DecodeVote, true};
  table["match"] = {&DecodeMatch, true};
  table["redux"] = {&DecodeRedux, true};
  table["elect"] = {&DecodeElect, true};
  table["activemask"] = {&DecodeActiveMask, true};
}

}  // namespace tally::sim_driver
