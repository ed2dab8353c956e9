// Asynchronous copies and their barriers: cp.async, cp.async.bulk, mbarrier. Copies are done when issued, which is one
// of the orders that PTX allows; waiting for groups then has nothing to do.

#include <cstring>

#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

// The 64 bits of an mbarrier object, which PTX leaves open. Only threads of one cluster use one, so plain accesses do.
struct MBarrier {
  static constexpr uint64_t kCountMask = (1u << 20) - 1;
  static constexpr uint64_t kTransactionMask = (1u << 23) - 1;

  uint32_t phase;        // bit 63
  uint32_t pending;      // bits 43-62
  uint32_t expected;     // bits 23-42
  int32_t transactions;  // bits 0-22, signed

  static MBarrier Unpack(uint64_t bits) {
    return {static_cast<uint32_t>(bits >> 63), static_cast<uint32_t>(bits >> 43 & kCountMask),
            static_cast<uint32_t>(bits >> 23 & kCountMask),
            static_cast<int32_t>(static_cast<uint32_t>(bits & kTransactionMask) << 9) >> 9};
  }
  uint64_t Pack() const {
    return uint64_t{phase} << 63 | (pending & kCountMask) << 43 | (expected & kCountMask) << 23 |
           (static_cast<uint32_t>(transactions) & kTransactionMask);
  }
  void CompleteIfDone() {
    if (pending != 0 || transactions != 0) return;
    phase ^= 1;
    pending = expected;
  }
};

template <typename Body>
void ForBarriers(Warp& w, const Instruction& i, Body body) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    std::byte* at =
        ResolveAddress(w, i, lane, static_cast<Space>(i.x), base[lane] + static_cast<uint64_t>(i.imm), 8, 8, true);
    if (at == nullptr) return;
    uint64_t bits = 0;
    std::memcpy(&bits, at, 8);
    MBarrier barrier = MBarrier::Unpack(bits);
    body(lane, barrier, bits);
    bits = barrier.Pack();
    std::memcpy(at, &bits, 8);
  }
}

void OpMBarrierInit(Warp& w, const Instruction& i) {
  const uint32_t* counts = Source<uint32_t>(w, i.b);
  ForBarriers(w, i, [&](uint32_t lane, MBarrier& barrier, uint64_t) { barrier = {0, counts[lane], counts[lane], 0}; });
}

constexpr uint32_t kDrops = 1;
constexpr uint32_t kExpects = 2;
// b = how many arrive (1 with kExpects), c = bytes to expect (kExpects), d = state; y = flags.
void OpMBarrierArrive(Warp& w, const Instruction& i) {
  const uint32_t* counts = Source<uint32_t>(w, i.b);
  const uint32_t* bytes = Source<uint32_t>(w, i.c);
  uint64_t* d = Target<uint64_t>(w, i.d);
  ForBarriers(w, i, [&](uint32_t lane, MBarrier& barrier, uint64_t before) {
    if (i.y & kExpects) barrier.transactions += static_cast<int32_t>(bytes[lane]);
    if (counts[lane] > barrier.pending)
      return RaiseFault(w, i, lane, kFaultLaunchFailed,
                        Format("{} arrivals at an mbarrier that expects {} more", counts[lane], barrier.pending));
    if (i.y & kDrops) barrier.expected -= std::min(barrier.expected, counts[lane]);
    barrier.pending -= counts[lane];
    barrier.CompleteIfDone();
    d[lane] = before;
  });
}
void OpMBarrierTransactions(Warp& w, const Instruction& i) {  // b = bytes; y: complete rather than expect
  const uint32_t* bytes = Source<uint32_t>(w, i.b);
  ForBarriers(w, i, [&](uint32_t lane, MBarrier& barrier, uint64_t) {
    barrier.transactions += i.y ? -static_cast<int32_t>(bytes[lane]) : static_cast<int32_t>(bytes[lane]);
    if (i.y) barrier.CompleteIfDone();
  });
}

constexpr uint32_t kParity = 1;
constexpr uint32_t kTry = 2;
// d = has the phase (b: state, or parity with kParity) completed?
void OpMBarrierWait(Warp& w, const Instruction& i) {
  const uint64_t* states = Source<uint64_t>(w, i.b);
  const uint32_t* parities = Source<uint32_t>(w, i.b);
  uint32_t done = 0;
  ForBarriers(w, i, [&](uint32_t lane, MBarrier& barrier, uint64_t) {
    uint32_t phase = i.y & kParity ? parities[lane] & 1 : static_cast<uint32_t>(states[lane] >> 63);
    if (barrier.phase != phase) done |= 1u << lane;
  });
  if (w.stop == StopReason::kFault) return;
  SetPredicate(w, i.d, done);
  // Whoever waits polls: others first.
  if ((done & w.mask) == w.mask) return;
  if (i.y & kTry) {
    w.Stop(StopReason::kYield);
  } else {
    w.NotePoll(false);
  }
}
struct PendingCount {
  uint32_t operator()(uint64_t state) const { return MBarrier::Unpack(state).pending; }
};

bool DecodeMBarrier(Lowering& l) {
  std::string_view what = l.Modifier(0);
  if (what == "pending_count") {
    VirtualOperand a = l.Use(1, ScalarType::kB64);
    l.Emit(&Unary<uint32_t, uint64_t, PendingCount{}>, l.Define(0, ScalarType::kB32), a);
    return true;
  }
  StateSpace state_space = StateSpace::kNone;
  Space space = SpaceOf(l, &state_space);
  bool has_result = what == "arrive" || what == "arrive_drop" || what == "test_wait" || what == "try_wait";
  // arrive may be written without its state operand.
  if (has_result && l.operand(0).kind == OperandKind::kMemory) has_result = false;
  size_t next = has_result ? 1 : 0;
  Lowering::Address address = l.AddressOf(l.operand(next), state_space);
  VirtualOperand base = l.WideAddress(address);
  auto emit = [&](OpFunction op, VirtualOperand d, VirtualOperand b, VirtualOperand c, uint32_t flags) {
    Instruction& i = l.Emit(op, d, base, b, c).i;
    i.imm = address.offset;
    i.x = static_cast<uint32_t>(space);
    i.y = flags;
    return true;
  };
  if (what == "inval") return true;
  if (what == "init") return emit(&OpMBarrierInit, kNoOperand, l.Use(next + 1, ScalarType::kU32), kNoOperand, 0);
  if (what == "expect_tx" || what == "complete_tx")
    return emit(&OpMBarrierTransactions, kNoOperand, l.Use(next + 1, ScalarType::kU32), kNoOperand,
                what == "complete_tx");
  if (what == "arrive" || what == "arrive_drop") {
    bool expects = l.Has("expect_tx");
    VirtualOperand extra = l.num_operands() > next + 1 ? l.Use(next + 1, ScalarType::kU32) : l.Constant(4, 1);
    VirtualOperand d = has_result ? l.Define(0, ScalarType::kB64) : l.Temporary(8);
    return emit(&OpMBarrierArrive, d, expects ? l.Constant(4, 1) : extra, extra,
                (what == "arrive_drop" ? kDrops : 0) | (expects ? kExpects : 0));
  }
  if ((what == "test_wait" || what == "try_wait") && has_result) {
    bool is_parity = l.Has("parity");
    VirtualOperand b = l.Use(2, is_parity ? ScalarType::kU32 : ScalarType::kB64);
    return emit(&OpMBarrierWait, l.DefinePredicate(size_t{0}), b, kNoOperand,
                (is_parity ? kParity : 0) | (what == "try_wait" ? kTry : 0));
  }
  return false;
}

// ---------------------------------------------------------------- cp.async

// a = to (shared), b = from (global), c = bytes to read (u32, the rest is zero), imm = offset of to, list[0] = offset
// of from; x = bytes.
void OpCopyAsync(Warp& w, const Instruction& i) {
  const uint64_t* to_base = Source<uint64_t>(w, i.a);
  const uint64_t* from_base = Source<uint64_t>(w, i.b);
  const uint32_t* sizes = Source<uint32_t>(w, i.c);
  uint32_t ignored = i.y ? SourcePredicate(w, i.f) : 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint32_t size = ignored >> lane & 1 ? 0 : std::min(sizes[lane], i.x);
    std::byte bytes[16] = {};
    if (size != 0) {
      uint64_t from = from_base[lane] + static_cast<uint64_t>(static_cast<int32_t>(i.list[0]));
      const std::byte* source = ResolveAddress(w, i, lane, Space::kGlobal, from, size, i.x, false);
      if (source == nullptr) return;
      for (uint32_t k = 0; k < size; ++k)
        bytes[k] = static_cast<std::byte>(AtomicLoad(reinterpret_cast<const uint8_t*>(source + k)));
    }
    std::byte* target =
        ResolveAddress(w, i, lane, Space::kShared, to_base[lane] + static_cast<uint64_t>(i.imm), i.x, i.x, true);
    if (target == nullptr) return;
    std::memcpy(target, bytes, i.x);
  }
}

// cp.async.mbarrier.arrive.noinc: the copies are done, so it arrives now. (Without .noinc the count is raised first:
// nothing changes.)
bool DecodeArriveAfterCopies(Lowering& l) {
  if (!l.Has("noinc")) return true;
  StateSpace state_space = StateSpace::kNone;
  Space space = SpaceOf(l, &state_space);
  Lowering::Address address = l.AddressOf(l.operand(0), state_space);
  VirtualOperand base = l.WideAddress(address);
  Instruction& i = l.Emit(&OpMBarrierArrive, l.Temporary(8), base, l.Constant(4, 1), l.Constant(4, 0)).i;
  i.imm = address.offset;
  i.x = static_cast<uint32_t>(space);
  return true;
}

// cp.async.bulk between global and shared: a = to, b = from, c = bytes, f = mbarrier (if y); x = Space to | from << 8 |
// of the mbarrier << 16. Offsets: list.
void OpCopyBulk(Warp& w, const Instruction& i) {
  const uint64_t* to_base = Source<uint64_t>(w, i.a);
  const uint64_t* from_base = Source<uint64_t>(w, i.b);
  const uint32_t* sizes = Source<uint32_t>(w, i.c);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint32_t size = sizes[lane];
    if (size % 16 != 0)
      return RaiseFault(w, i, lane, kFaultMisalignedAddress, Format("{} bytes are not a multiple of 16", size));
    if (size == 0) continue;
    std::byte* to =
        ResolveAddress(w, i, lane, static_cast<Space>(i.x & 0xff),
                       to_base[lane] + static_cast<uint64_t>(static_cast<int32_t>(i.list[0])), size, 16, true);
    if (to == nullptr) return;
    const std::byte* from =
        ResolveAddress(w, i, lane, static_cast<Space>(i.x >> 8 & 0xff),
                       from_base[lane] + static_cast<uint64_t>(static_cast<int32_t>(i.list[1])), size, 16, false);
    if (from == nullptr) return;
    for (uint32_t k = 0; k < size; k += 8)
      AtomicStore(reinterpret_cast<uint64_t*>(to + k), AtomicLoad(reinterpret_cast<const uint64_t*>(from + k)));
    if (!i.y) continue;
    std::byte* at = ResolveAddress(
        w, i, lane, static_cast<Space>(i.x >> 16),
        Source<uint64_t>(w, i.f)[lane] + static_cast<uint64_t>(static_cast<int32_t>(i.list[2])), 8, 8, true);
    if (at == nullptr) return;
    uint64_t bits = 0;
    std::memcpy(&bits, at, 8);
    MBarrier barrier = MBarrier::Unpack(bits);
    barrier.transactions -= static_cast<int32_t>(size);
    barrier.CompleteIfDone();
    bits = barrier.Pack();
    std::memcpy(at, &bits, 8);
  }
}

bool DecodeCopyBulk(Lowering& l) {
  for (const char* refused : {"tensor", "multicast::cluster", "cp_mask", "reduce"})
    if (l.Has(refused)) return false;
  if (l.Has("prefetch") || l.Has("commit_group") || l.Has("wait_group")) return true;
  Space to = Space::kGeneric;
  Space from = Space::kGeneric;
  size_t found = 0;
  for (std::string_view modifier : l.instruction().modifiers) {
    StateSpace space = ptx::StateSpaceFromName(modifier);
    if (space == StateSpace::kNone) continue;
    Space as = space == StateSpace::kGlobal    ? Space::kGlobal
               : modifier == "shared::cluster" ? Space::kSharedCluster
                                               : Space::kShared;
    (found++ == 0 ? to : from) = as;
  }
  bool has_mbarrier = l.Has("mbarrier::complete_tx::bytes");
  if (found != 2 || l.num_operands() < (has_mbarrier ? 4u : 3u)) return false;
  Lowering::Address to_address = l.AddressOf(l.operand(0), StateSpace::kNone);
  Lowering::Address from_address = l.AddressOf(l.operand(1), StateSpace::kNone);
  VirtualOperand a = l.WideAddress(to_address);
  VirtualOperand b = l.WideAddress(from_address);
  VirtualOperand c = l.Use(2, ScalarType::kU32);
  Lowering::Address barrier_address;
  VirtualOperand f = kNoOperand;
  if (has_mbarrier) {
    barrier_address = l.AddressOf(l.operand(3), StateSpace::kNone);
    f = l.WideAddress(barrier_address);
  }
  LoweredInstruction& lowered = l.Emit(&OpCopyBulk, kNoOperand, a, b, c);
  lowered.i.f = f;
  lowered.i.x = static_cast<uint32_t>(to) | static_cast<uint32_t>(from) << 8 |
                static_cast<uint32_t>(to == Space::kGlobal ? Space::kShared : to) << 16;
  lowered.i.y = has_mbarrier;
  lowered.numbers = {static_cast<uint32_t>(to_address.offset), static_cast<uint32_t>(from_address.offset),
                     static_cast<uint32_t>(barrier_address.offset)};
  return true;
}

bool DecodeCopy(Lowering& l) {
  if (l.Modifier(0) != "async") return false;
  if (l.Modifier(1) == "bulk") return DecodeCopyBulk(l);
  if (l.Modifier(1) == "mbarrier") return DecodeArriveAfterCopies(l);
  if (l.Has("commit_group") || l.Has("wait_group") || l.Has("wait_all")) return true;
  if (l.Modifier(1) != "ca" && l.Modifier(1) != "cg") return false;
  Lowering::Address to = l.AddressOf(l.operand(0), StateSpace::kShared);
  Lowering::Address from = l.AddressOf(l.operand(1), StateSpace::kGlobal);
  VirtualOperand a = l.WideAddress(to);
  VirtualOperand b = l.WideAddress(from);
  uint64_t bytes = l.operand(2).bits;
  if (l.operand(2).kind != OperandKind::kInteger || (bytes != 4 && bytes != 8 && bytes != 16))
    return l.Invalid("cp.async copies 4, 8 or 16 bytes");
  VirtualOperand size = l.Constant(4, bytes);
  VirtualOperand ignore = kNoOperand;
  if (l.num_operands() > 3 && !(l.num_operands() == 4 && l.Has("L2::cache_hint"))) {
    const ptx::Operand& extra = l.operand(3);
    bool is_predicate = false;
    if (extra.kind == OperandKind::kRegister) {
      uint32_t width = 0;
      VirtualOperand value = l.UseWide(extra, ScalarType::kU32, &width);
      is_predicate = width == kPredicateClass;
      (is_predicate ? ignore : size) = value;
      if (!is_predicate && width != 4) return l.Invalid("the source size has 32 bits");
    } else {
      size = l.Use(extra, ScalarType::kU32);
    }
  }
  LoweredInstruction& lowered = l.Emit(&OpCopyAsync, kNoOperand, a, b, size);
  lowered.i.imm = to.offset;
  lowered.i.x = static_cast<uint32_t>(bytes);
  lowered.i.f = ignore;
  lowered.i.y = ignore != kNoOperand;
  lowered.numbers = {static_cast<uint32_t>(from.offset)};
  return true;
}

}  // namespace

void AddAsyncOpcodes(OpcodeTable& table) {
  table["cp"] = {&DecodeCopy};
  table["mbarrier"] = {&DecodeMBarrier, true};
}

}  // namespace tally::sim_driver
