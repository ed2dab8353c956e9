// Asynchronous copies: cp.async, cp.async.bulk. Those that complete an mbarrier arrive as delivery.h says. Bulk copies
// to global memory are done when issued, which is one of the orders that PTX allows. So are cp.async, but where the
// schedule of the launch is drawn from a seed: there they arrive when the thread waits for them, and no sooner.

#include <cstring>
#include <vector>

#include "sim-driver/engine/delivery.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

// ---------------------------------------------------------------- cp.async

constexpr size_t kMostLateCopies = 1 << 14;  // of a warp

// What these lanes have asked for before their last `num_left` groups, or altogether.
void AwaitCopies(Warp& w, uint32_t lanes, uint32_t num_left, bool are_all) {
  std::erase_if(w.late_copies, [&](const LateCopy& copy) {
    if ((lanes >> copy.lane & 1) == 0) return false;
    if (!are_all && copy.group + num_left >= w.copy_groups[copy.lane]) return false;
    std::memcpy(copy.to, copy.bytes.data(), copy.size);
    return true;
  });
}

void OpCommitCopies(Warp& w, const Instruction&) {
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) ++w.copy_groups[std::countr_zero(rest)];
}
// x = groups that may be on their way; y: none may be, committed or not.
void OpAwaitCopies(Warp& w, const Instruction& i) { AwaitCopies(w, w.mask, i.x, i.y != 0); }

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
    if (w.block->cluster->schedule.IsNatural() || w.late_copies.size() >= kMostLateCopies) {
      std::memcpy(target, bytes, i.x);
      continue;
    }
    LateCopy late{.to = target, .lane = lane, .group = w.copy_groups[lane], .size = i.x};
    std::memcpy(late.bytes.data(), bytes, i.x);
    w.late_copies.push_back(late);
  }
}

// cp.async.bulk. a = to, b = from, c = bytes, f = mbarrier (if y); x = Space to | from << 8. list: offsets of the
// three, then the mask of blocks (kMulticast).
constexpr uint32_t kHasBarrier = 1;
constexpr uint32_t kMulticast = 2;
void OpCopyBulk(Warp& w, const Instruction& i) {
  const auto to_space = static_cast<Space>(i.x & 0xff);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const auto address = [&](uint32_t operand, uint32_t k) {
      return Source<uint64_t>(w, operand)[lane] + Source<uint64_t>(w, i.list[k])[lane];
    };
    const uint32_t size = Source<uint32_t>(w, i.c)[lane];
    if (size % 16 != 0)
      return RaiseFault(w, i, lane, kFaultMisalignedAddress, Format("{} bytes are not a multiple of 16", size));
    if (size == 0) continue;
    const std::byte* from = ResolveAddress(w, i, lane, static_cast<Space>(i.x >> 8), address(i.b, 1), size, 16, false);
    if (from == nullptr) return;
    // Checked before anything is set aside for it.
    std::byte* to = i.y & kMulticast ? nullptr : ResolveAddress(w, i, lane, to_space, address(i.a, 0), size, 16, true);
    if (to == nullptr && !(i.y & kMulticast)) return;
    std::vector<std::byte> bytes(size <= MachineLimits::kSharedBytesPerBlockOptin && i.y ? size : 0);
    std::byte* words = i.y ? bytes.data() : to;
    if (i.y && bytes.empty()) return RaiseFault(w, i, lane, kFaultIllegalAddress, "more bytes than shared memory has");
    for (uint32_t k = 0; k < size; k += 8)
      AtomicStore(reinterpret_cast<uint64_t*>(words + k), AtomicLoad(reinterpret_cast<const uint64_t*>(from + k)));
    if (!i.y) continue;
    const Destination destination{.to = address(i.a, 0),
                                  .barrier = address(i.f, 2),
                                  .is_multicast = (i.y & kMulticast) != 0,
                                  .blocks = i.y & kMulticast ? Source<uint16_t>(w, i.list[3])[lane] : 0u};
    if (!Deliver(w, i, lane, destination, bytes)) return;
  }
}

bool DecodeCopyBulk(Lowering& l) {
  if (l.Has("tensor")) return DecodeTensorCopy(l);
  if (l.Has("cp_mask") || l.Has("reduce")) return false;
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
  const bool has_barrier = l.Has("mbarrier::complete_tx::bytes"), is_multicast = l.Has("multicast::cluster");
  if (found != 2 || (to != Space::kGlobal) != has_barrier || (is_multicast && !has_barrier)) return false;
  Lowering::Address to_address = l.AddressOf(l.operand(0), StateSpace::kNone);
  Lowering::Address from_address = l.AddressOf(l.operand(1), StateSpace::kNone);
  VirtualOperand a = l.WideAddress(to_address);
  VirtualOperand b = l.WideAddress(from_address);
  VirtualOperand c = l.Use(2, ScalarType::kU32);
  Lowering::Address barrier_address;
  VirtualOperand f = kNoOperand;
  if (has_barrier) {
    barrier_address = l.AddressOf(l.operand(3), StateSpace::kNone);
    f = l.WideAddress(barrier_address);
  }
  std::vector<VirtualOperand> list;
  for (const int64_t offset : {to_address.offset, from_address.offset, barrier_address.offset})
    list.push_back(l.Constant(8, static_cast<uint64_t>(offset)));
  if (is_multicast) list.push_back(l.Use(4, ScalarType::kB16));
  LoweredInstruction& lowered = l.Emit(&OpCopyBulk, kNoOperand, a, b, c);
  lowered.i.f = f;
  lowered.i.x = static_cast<uint32_t>(to) | static_cast<uint32_t>(from) << 8;
  lowered.i.y = (has_barrier ? kHasBarrier : 0) | (is_multicast ? kMulticast : 0);
  lowered.list = std::move(list);
  return true;
}

bool DecodeCopy(Lowering& l) {
  if (l.Modifier(0) != "async") return false;
  if (l.Modifier(1) == "bulk") return DecodeCopyBulk(l);
  if (l.Modifier(1) == "mbarrier") {
    l.Emit(&OpAwaitCopies).i.y = 1;  // the arrival counts for those before it
    return DecodeArriveAfterCopies(l);
  }
  if (l.Has("commit_group")) {
    l.Emit(&OpCommitCopies);
    return true;
  }
  if (l.Has("wait_group") || l.Has("wait_all")) {
    Instruction& wait = l.Emit(&OpAwaitCopies).i;
    wait.y = l.Has("wait_all") ? 1 : 0;
    if (wait.y != 0) return true;
    if (l.operand(0).kind != OperandKind::kInteger) return l.Invalid("cp.async.wait_group waits for a constant");
    wait.x = static_cast<uint32_t>(std::min<uint64_t>(l.operand(0).bits, kMostLateCopies));
    return true;
  }
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

void AddAsyncOpcodes(OpcodeTable& table) { table["cp"] = {&DecodeCopy}; }

}  // namespace tally::sim_driver
