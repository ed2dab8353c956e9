#include "sim-driver/engine/mbarrier.h"

#include <cstring>

#include "sim-driver/engine/delay.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

void CompleteTransactions(std::byte* at, uint32_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, 8);
  MBarrier barrier = MBarrier::Unpack(bits);
  barrier.transactions -= static_cast<int32_t>(bytes);
  barrier.CompleteIfDone();
  bits = barrier.Pack();
  std::memcpy(at, &bits, 8);
}

namespace {

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
  if (DelaysBefore(w, i)) return;
  const uint64_t* states = Source<uint64_t>(w, i.b);
  const uint32_t* parities = Source<uint32_t>(w, i.b);
  uint32_t done = 0;
  ForBarriers(w, i, [&](uint32_t lane, MBarrier& barrier, uint64_t) {
    uint32_t phase = i.y & kParity ? parities[lane] & 1 : static_cast<uint32_t>(states[lane] >> 63);
    if (barrier.phase != phase) done |= 1u << lane;
  });
  if (w.stop == StopReason::kFault) return;
  SetPredicate(w, i.d, done);
  if ((done & w.mask) == w.mask) return;
  // Whoever waits polls: others first.
  w.polled_at = &i;
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

}  // namespace

bool IsMBarrierWait(const Instruction& i) { return i.op == &OpMBarrierWait; }

std::string DescribeMBarrier(const Warp& w, const Split& split) {
  if (split.state != SplitState::kRunnable || split.pc == split.frame->function->instructions.data()) return "";
  const Instruction& i = split.pc[-1];
  if (!IsMBarrierWait(i) || static_cast<Space>(i.x) != Space::kShared) return "";
  const std::byte* addresses = (i.a & 1 ? w.bases[1] : split.frame->registers) + i.a;
  uint64_t at = 0;
  std::memcpy(&at, addresses + 8 * std::countr_zero(split.mask), sizeof at);
  at += static_cast<uint64_t>(i.imm);
  if (at >= w.block->shared_bytes || w.block->shared_bytes - at < 8) return "";
  uint64_t bits = 0;
  std::memcpy(&bits, w.block->shared + at, sizeof bits);
  const MBarrier barrier = MBarrier::Unpack(bits);
  std::string text;
  if (barrier.pending != 0) text += Format(" ({} arrivals are missing)", barrier.pending);
  if (barrier.transactions > 0) text += Format(" ({} bytes are missing)", barrier.transactions);
  if (barrier.transactions < 0) text += Format(" ({} bytes more than it expects were brought)", -barrier.transactions);
  return text;
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

void AddMBarrierOpcodes(OpcodeTable& table) { table["mbarrier"] = {&DecodeMBarrier, true}; }

}  // namespace tally::sim_driver
