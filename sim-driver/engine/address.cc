// Addresses: cvta, isspacep, mapa, getctarank, alloca, stacksave, stackrestore.

#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

Space SpaceOf(const Lowering& l, StateSpace* state_space) {
  for (std::string_view modifier : l.instruction().modifiers) {
    StateSpace found = ptx::StateSpaceFromName(modifier);
    if (found == StateSpace::kNone) continue;
    if (state_space != nullptr) *state_space = found;
    switch (found) {
      case StateSpace::kGlobal:
        return Space::kGlobal;
      case StateSpace::kConst:
        return Space::kConst;
      case StateSpace::kShared:
        return modifier == "shared::cluster" ? Space::kSharedCluster : Space::kShared;
      case StateSpace::kLocal:
        return Space::kLocal;
      case StateSpace::kParam:
        return Space::kParam;
      default:
        break;
    }
  }
  return Space::kGeneric;
}

namespace {

constexpr uint64_t kOffsetMask = (1u << kSharedRankShift) - 1;

void OpCheckAlignment(Warp& w, const Instruction& i) {
  const uint64_t* a = Source<uint64_t>(w, i.a);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = a[lane] + static_cast<uint64_t>(i.imm);
    if (address % i.x != 0)
      return RaiseFault(w, i, lane, kFaultMisalignedAddress,
                        Format("address {:#x} is not a multiple of {}", address, i.x));
  }
}

void OpToGeneric(Warp& w, const Instruction& i) {  // imm = window
  uint64_t* d = Target<uint64_t>(w, i.d);
  const uint64_t* a = Source<uint64_t>(w, i.a);
  auto window = static_cast<uint64_t>(i.imm);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = a[l] | window; });
}
void OpFromGeneric(Warp& w, const Instruction& i) {
  uint64_t* d = Target<uint64_t>(w, i.d);
  const uint64_t* a = Source<uint64_t>(w, i.a);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = a[l] & ~kWindowMask; });
}

uint64_t WindowOf(Space space) {
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParamWindow;
    default:
      return 0;
  }
}

bool DecodeCvta(Lowering& l) {
  Space space = SpaceOf(l, nullptr);
  bool from_generic = l.Modifier(0) == "to";
  if (l.Type() != ScalarType::kU64) return l.Unsupported("cvta of 32-bit addresses");
  VirtualOperand a = l.Use(1, ScalarType::kU64);
  VirtualOperand d = l.Define(0, ScalarType::kU64);
  uint64_t window = WindowOf(space);
  if (window == 0) {
    l.Emit(MoveOp(8), d, a);
  } else {
    l.Emit(from_generic ? &OpFromGeneric : &OpToGeneric, d, a).i.imm = static_cast<int64_t>(window);
  }
  return true;
}

void OpIsSpace(Warp& w, const Instruction& i) {  // x = Space
  const uint64_t* a = Source<uint64_t>(w, i.a);
  auto space = static_cast<Space>(i.x);
  uint64_t window = WindowOf(space);
  uint32_t own = w.block->rank + 1;
  uint32_t result = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    bool value = (a[lane] & kWindowMask) == window;
    auto rank = static_cast<uint32_t>((a[lane] & ~kWindowMask) >> kSharedRankShift);
    if (space == Space::kShared && rank != 0 && rank != own) value = false;
    if (space == Space::kConst) value = false;  // constant variables lie in global memory here
    result |= static_cast<uint32_t>(value) << lane;
  }
  SetPredicate(w, i.d, result);
}

bool DecodeIsspacep(Lowering& l) {
  VirtualOperand a = l.Use(1, ScalarType::kU64);
  l.Emit(&OpIsSpace, l.DefinePredicate(size_t{0}), a).i.x = static_cast<uint32_t>(SpaceOf(l, nullptr));
  return true;
}

template <typename T>
void OpMapa(Warp& w, const Instruction& i) {  // imm = window of the result
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  const uint32_t* rank = Source<uint32_t>(w, i.b);
  auto window = static_cast<uint64_t>(i.imm);
  ForLanes(w.mask, [=](uint32_t l) {
    d[l] = static_cast<T>((a[l] & kOffsetMask) | (uint64_t{(rank[l] & 0x7f) + 1} << kSharedRankShift) | window);
  });
}

bool DecodeMapa(Lowering& l) {
  ScalarType type = l.Type();
  bool is_generic = SpaceOf(l, nullptr) == Space::kGeneric;
  if (type != ScalarType::kU32 && type != ScalarType::kU64) return false;
  if (is_generic && type != ScalarType::kU64) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, ScalarType::kU32);
  l.Emit(type == ScalarType::kU64 ? &OpMapa<uint64_t> : &OpMapa<uint32_t>, l.Define(0, type), a, b).i.imm =
      is_generic ? static_cast<int64_t>(kSharedWindow) : 0;
  return true;
}

template <typename T>
void OpGetRank(Warp& w, const Instruction& i) {
  uint32_t* d = Target<uint32_t>(w, i.d);
  const T* a = Source<T>(w, i.a);
  uint32_t own = w.block->rank;
  ForLanes(w.mask, [=](uint32_t l) {
    auto rank = static_cast<uint32_t>((uint64_t{a[l]} & ~kWindowMask) >> kSharedRankShift);
    d[l] = rank == 0 ? own : rank - 1;
  });
}

bool DecodeGetctarank(Lowering& l) {
  ScalarType type = l.Type();
  if (type != ScalarType::kU32 && type != ScalarType::kU64) return false;
  VirtualOperand a = l.Use(1, type);
  l.Emit(type == ScalarType::kU64 ? &OpGetRank<uint64_t> : &OpGetRank<uint32_t>, l.Define(0, ScalarType::kU32), a);
  return true;
}

// ---------------------------------------------------------------- stack

// d = address of as many bytes as the hungriest lane wants (a); x = alignment.
void OpAlloca(Warp& w, const Instruction& i) {
  const uint64_t* bytes = Source<uint64_t>(w, i.a);
  uint64_t most = 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) most = std::max(most, bytes[std::countr_zero(rest)]);
  uint64_t start = (uint64_t{w.frame->local_top} + i.x - 1) / i.x * i.x;
  uint32_t size = w.block->cluster->local_stride_bytes;
  if (start > size || most > size - start)
    return RaiseFault(w, i, kLanes, kFaultHardwareStackError, Format("no stack for alloca of {} bytes", most));
  w.frame->local_top = static_cast<uint32_t>(start + most);
  uint64_t* d = Target<uint64_t>(w, i.d);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = start; });
}
void OpStackSave(Warp& w, const Instruction& i) {
  uint64_t* d = Target<uint64_t>(w, i.d);
  ForLanes(w.mask, [d, top = w.frame->local_top](uint32_t l) { d[l] = top; });
}
void OpStackRestore(Warp& w, const Instruction& i) {
  // Lanes elsewhere in the function may still use what they allocated since.
  if (w.mask != w.frame->live) return;
  uint64_t top = Source<uint64_t>(w, i.a)[std::countr_zero(w.mask)];
  uint32_t least = w.frame->local_base + w.frame->function->local_bytes;
  if (top >= least && top <= w.frame->local_top) w.frame->local_top = static_cast<uint32_t>(top);
}

bool DecodeAlloca(Lowering& l) {
  if (l.Type() != ScalarType::kU64) return false;
  VirtualOperand a = l.Use(1, ScalarType::kU64);
  uint64_t align = l.num_operands() > 2 ? l.operand(2).bits : 16;
  if (align == 0 || align > 128 || (align & (align - 1)) != 0)
    return l.Invalid("alignment is not a power of two up to 128");
  l.Emit(&OpAlloca, l.Define(0, ScalarType::kU64), a).i.x = static_cast<uint32_t>(align);
  return true;
}
bool DecodeStackSave(Lowering& l) {
  if (l.Type() != ScalarType::kU64) return false;
  l.Emit(&OpStackSave, l.Define(0, ScalarType::kU64));
  return true;
}
bool DecodeStackRestore(Lowering& l) {
  if (l.Type() != ScalarType::kU64) return false;
  VirtualOperand a = l.Use(0, ScalarType::kU64);
  l.Emit(&OpStackRestore, kNoOperand, a);
  return true;
}

}  // namespace

void EmitAlignmentCheck(Lowering& l, VirtualOperand address, int64_t offset, uint32_t align) {
  Instruction& i = l.Emit(&OpCheckAlignment, kNoOperand, address).i;
  i.imm = offset;
  i.x = align;
}

void AddAddressOpcodes(OpcodeTable& table) {
  table["cvta"] = {&DecodeCvta};
  table["isspacep"] = {&DecodeIsspacep};
  table["mapa"] = {&DecodeMapa};
  table["getctarank"] = {&DecodeGetctarank};
  table["alloca"] = {&DecodeAlloca};
  table["stacksave"] = {&DecodeStackSave};
  table["stackrestore"] = {&DecodeStackRestore};
}

}  // namespace tally::sim_driver
