// Loads, stores and addresses: ld, ldu, st, cvta, isspacep, mapa, getctarank, alloca, stacksave, stackrestore.

#include <cstring>

#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/memory_view.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"
#include "sim-driver/engine/type_switch.h"

namespace tally::sim_driver {
namespace {

// ---------------------------------------------------------------- global, const, generic

// Lanes that access consecutive elements, which is most of them, need one check and one copy.
template <typename T>
bool IsConsecutive(const uint64_t* base) {
  if (kThreadSanitizer) return false;
  uint64_t first = base[0];
  uint64_t difference = 0;
  for (uint32_t l = 0; l < kLanes; ++l) difference |= (base[l] - first) ^ (l * sizeof(T));
  return difference == 0;
}

// a = address (64 bit), imm = offset, x = Space.
template <typename T>
void OpLoadGlobal(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  T* d = Target<T>(w, i.d);
  auto space = static_cast<Space>(i.x);
  auto offset = static_cast<uint64_t>(i.imm);
  MemoryView::Range& range = w.memory->RangeFor(&i);
  if (w.mask == kFullMask && IsConsecutive<T>(base)) {
    uint64_t address = base[0] + offset;
    if (range.Contains(address, sizeof(T) * kLanes) && address % sizeof(T) == 0) {
      std::memcpy(d, reinterpret_cast<const void*>(address), sizeof(T) * kLanes);
      return;
    }
  }
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + offset;
    const auto* from = reinterpret_cast<const T*>(address);
    if (!range.Contains(address, sizeof(T)) || address % sizeof(T) != 0) [[unlikely]] {
      from =
          reinterpret_cast<const T*>(ResolveAddress(w, i, lane, space, address, sizeof(T), sizeof(T), false, &range));
      if (from == nullptr) return;
    }
    d[lane] = AtomicLoad(from);
  }
}

template <typename T>
void OpStoreGlobal(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  const T* value = Source<T>(w, i.b);
  auto space = static_cast<Space>(i.x);
  auto offset = static_cast<uint64_t>(i.imm);
  MemoryView::Range& range = w.memory->RangeFor(&i);
  if (w.mask == kFullMask && range.is_writable && IsConsecutive<T>(base)) {
    uint64_t address = base[0] + offset;
    if (range.Contains(address, sizeof(T) * kLanes) && address % sizeof(T) == 0) {
      std::memcpy(reinterpret_cast<void*>(address), value, sizeof(T) * kLanes);
      return;
    }
  }
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + offset;
    auto* to = reinterpret_cast<T*>(address);
    if (!range.Contains(address, sizeof(T)) || address % sizeof(T) != 0 || !range.is_writable) [[unlikely]] {
      to = reinterpret_cast<T*>(ResolveAddress(w, i, lane, space, address, sizeof(T), sizeof(T), true, &range));
      if (to == nullptr) return;
    }
    AtomicStore(to, value[lane]);
  }
}

// A volatile, relaxed, acquire or mmio load of one register, as spinning threads use: y = it counts as a poll.
template <typename T>
void OpLoadStrong(Warp& w, const Instruction& i) {
  T before[kLanes];
  const T* d = Target<T>(w, i.d);
  std::memcpy(before, d, sizeof before);
  OpLoadGlobal<T>(w, i);
  uint32_t changed = 0;
  for (uint32_t l = 0; l < kLanes; ++l) changed |= d[l] != before[l];
  w.NotePoll(changed != 0);
}

// ---------------------------------------------------------------- shared and local

// Address is A (32 or 64 bit).
template <typename T, typename A>
void OpLoadShared(Warp& w, const Instruction& i) {
  const A* base = Source<A>(w, i.a);
  T* d = Target<T>(w, i.d);
  const Block& block = *w.block;
  bool is_checked = !block.shared_written.empty();
  uint64_t last = block.shared_bytes >= sizeof(T) ? block.shared_bytes - sizeof(T) : 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    A address = base[lane] + static_cast<A>(i.imm);
    bool is_plain = address < last && address % sizeof(T) == 0 && !is_checked;
    const std::byte* from =
        is_plain ? block.shared + address
                 : ResolveAddress(w, i, lane, static_cast<Space>(i.x), address, sizeof(T), sizeof(T), false);
    if (from == nullptr) return;
    std::memcpy(&d[lane], from, sizeof(T));
  }
}

template <typename T, typename A>
void OpStoreShared(Warp& w, const Instruction& i) {
  const A* base = Source<A>(w, i.a);
  const T* value = Source<T>(w, i.b);
  const Block& block = *w.block;
  bool is_checked = !block.shared_written.empty();
  uint64_t last = block.shared_bytes >= sizeof(T) ? block.shared_bytes - sizeof(T) : 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    A address = base[lane] + static_cast<A>(i.imm);
    bool is_plain = address < last && address % sizeof(T) == 0 && !is_checked;
    std::byte* to = is_plain ? block.shared + address
                             : ResolveAddress(w, i, lane, static_cast<Space>(i.x), address, sizeof(T), sizeof(T), true);
    if (to == nullptr) return;
    std::memcpy(to, &value[lane], sizeof(T));
  }
}

// The thread's own memory: each lane has local_stride_bytes of it.
template <typename T>
void OpLoadLocal(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  T* d = Target<T>(w, i.d);
  uint64_t stride = w.block->cluster->local_stride_bytes;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + static_cast<uint64_t>(i.imm);
    bool is_plain = address < stride - sizeof(T) && address % sizeof(T) == 0;
    const std::byte* from = is_plain ? w.local + lane * stride + address
                                     : ResolveAddress(w, i, lane, Space::kLocal, address, sizeof(T), sizeof(T), false);
    if (from == nullptr) return;
    std::memcpy(&d[lane], from, sizeof(T));
  }
}
template <typename T>
void OpStoreLocal(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  const T* value = Source<T>(w, i.b);
  uint64_t stride = w.block->cluster->local_stride_bytes;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + static_cast<uint64_t>(i.imm);
    bool is_plain = address < stride - sizeof(T) && address % sizeof(T) == 0;
    std::byte* to = is_plain ? w.local + lane * stride + address
                             : ResolveAddress(w, i, lane, Space::kLocal, address, sizeof(T), sizeof(T), true);
    if (to == nullptr) return;
    std::memcpy(to, &value[lane], sizeof(T));
  }
}

// ---------------------------------------------------------------- vectors: any space, `list` of y registers

template <typename T>
void OpLoadVector(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  auto space = static_cast<Space>(i.x);
  uint32_t count = i.y;
  auto bytes = static_cast<uint32_t>(count * sizeof(T));
  MemoryView::Range& range = w.memory->RangeFor(&i);
  bool is_global = space <= Space::kConst;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + static_cast<uint64_t>(i.imm);
    const auto* from = reinterpret_cast<const T*>(address);
    if (!is_global || !range.Contains(address, bytes) || address % bytes != 0) [[unlikely]] {
      from = reinterpret_cast<const T*>(ResolveAddress(w, i, lane, space, address, bytes, bytes, false, &range));
      if (from == nullptr) return;
    }
    // Registers written by one lane may not be its address: all elements first.
    T values[8];
    for (uint32_t k = 0; k < count; ++k) values[k] = AtomicLoad(from + k);
    for (uint32_t k = 0; k < count; ++k) Target<T>(w, i.list[k])[lane] = values[k];
  }
}

template <typename T>
void OpStoreVector(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  auto space = static_cast<Space>(i.x);
  uint32_t count = i.y;
  auto bytes = static_cast<uint32_t>(count * sizeof(T));
  MemoryView::Range& range = w.memory->RangeFor(&i);
  bool is_global = space <= Space::kConst;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + static_cast<uint64_t>(i.imm);
    auto* to = reinterpret_cast<T*>(address);
    if (!is_global || !range.Contains(address, bytes) || address % bytes != 0 || !range.is_writable) [[unlikely]] {
      to = reinterpret_cast<T*>(ResolveAddress(w, i, lane, space, address, bytes, bytes, true, &range));
      if (to == nullptr) return;
    }
    for (uint32_t k = 0; k < count; ++k) AtomicStore(to + k, Source<T>(w, i.list[k])[lane]);
  }
}

// ---------------------------------------------------------------- parameters

template <typename T, uint32_t kBytes = sizeof(T)>
void OpLoadKernelParameter(Warp& w, const Instruction& i) {
  T value = 0;
  std::memcpy(&value, w.block->cluster->grid->parameters.data() + i.imm, kBytes);
  T* d = Target<T>(w, i.d);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = value; });
}

// imm = offset in the lane's parameter area; a (if y) = offset to add, checked.
template <typename T, uint32_t kBytes = sizeof(T)>
void OpLoadFrameParameter(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  uint32_t stride = w.frame->function->parameter_stride_bytes;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    auto offset = static_cast<uint64_t>(i.imm);
    if (i.y) {
      offset += Source<uint64_t>(w, i.a)[lane];
      if (offset > stride || stride - offset < kBytes)
        return RaiseFault(w, i, lane, kFaultIllegalAddress, Format("parameter address {:#x} is outside", offset));
    }
    T value = 0;
    std::memcpy(&value, w.frame->parameters + size_t{lane} * stride + offset, kBytes);
    d[lane] = value;
  }
}
template <typename T>
void OpStoreFrameParameter(Warp& w, const Instruction& i) {
  const T* b = Source<T>(w, i.b);
  std::byte* to = w.frame->parameters + i.imm;
  uint32_t stride = w.frame->function->parameter_stride_bytes;
  ForLanes(w.mask, [=](uint32_t l) { std::memcpy(to + size_t{l} * stride, &b[l], sizeof(T)); });
}

void OpStoreFrameByte(Warp& w, const Instruction& i) {
  const uint16_t* b = Source<uint16_t>(w, i.b);
  std::byte* to = w.frame->parameters + i.imm;
  uint32_t stride = w.frame->function->parameter_stride_bytes;
  ForLanes(w.mask, [=](uint32_t l) { to[size_t{l} * stride] = static_cast<std::byte>(b[l]); });
}

// ---------------------------------------------------------------- choosing

OpFunction LoadOp(Space space, uint32_t bytes, bool is_wide, bool is_strong) {
  if (is_strong) {
    OpFunction op = ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpLoadStrong<T>; });
    if (op != nullptr) return op;
  }
  if (space == Space::kShared || space == Space::kSharedCluster)
    return ForWidth(bytes, [&]<typename T>(T) -> OpFunction {
      return is_wide ? &OpLoadShared<T, uint64_t> : &OpLoadShared<T, uint32_t>;
    });
  if (space == Space::kLocal) return ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpLoadLocal<T>; });
  return ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpLoadGlobal<T>; });
}
OpFunction StoreOp(Space space, uint32_t bytes, bool is_wide) {
  if (space == Space::kShared || space == Space::kSharedCluster)
    return ForWidth(bytes, [&]<typename T>(T) -> OpFunction {
      return is_wide ? &OpStoreShared<T, uint64_t> : &OpStoreShared<T, uint32_t>;
    });
  if (space == Space::kLocal) return ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpStoreLocal<T>; });
  return ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpStoreGlobal<T>; });
}

// One byte per lane: kept in 16-bit registers, moved as uint8_t.
void OpLoadByte(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  uint16_t* d = Target<uint16_t>(w, i.d);
  MemoryView::Range& range = w.memory->RangeFor(&i);
  auto space = static_cast<Space>(i.x);
  bool is_global = space <= Space::kConst;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + static_cast<uint64_t>(i.imm);
    const auto* from = reinterpret_cast<const uint8_t*>(address);
    if (!is_global || !range.Contains(address, 1)) [[unlikely]] {
      from = reinterpret_cast<const uint8_t*>(ResolveAddress(w, i, lane, space, address, 1, 1, false, &range));
      if (from == nullptr) return;
    }
    d[lane] = AtomicLoad(from);
  }
}
void OpStoreByte(Warp& w, const Instruction& i) {
  const uint64_t* base = Source<uint64_t>(w, i.a);
  const uint16_t* value = Source<uint16_t>(w, i.b);
  MemoryView::Range& range = w.memory->RangeFor(&i);
  auto space = static_cast<Space>(i.x);
  bool is_global = space <= Space::kConst;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + static_cast<uint64_t>(i.imm);
    auto* to = reinterpret_cast<uint8_t*>(address);
    if (!is_global || !range.Contains(address, 1) || !range.is_writable) [[unlikely]] {
      to = reinterpret_cast<uint8_t*>(ResolveAddress(w, i, lane, space, address, 1, 1, true, &range));
      if (to == nullptr) return;
    }
    AtomicStore(to, static_cast<uint8_t>(value[lane]));
  }
}

struct Access {
  Space space = Space::kGeneric;
  StateSpace state_space = StateSpace::kNone;
  ScalarType type = ScalarType::kNone;
  uint32_t element_bytes = 0;
  uint32_t count = 1;
};

bool ParseAccess(Lowering& l, Access* access) {
  access->space = SpaceOf(l, &access->state_space);
  for (std::string_view modifier : l.instruction().modifiers) {
    if (modifier == "v2") access->count = 2;
    if (modifier == "v4") access->count = 4;
    if (modifier == "v8") access->count = 8;
  }
  access->type = l.Type();
  access->element_bytes = MemoryBytes(access->type);
  return access->element_bytes != 0 && access->type != ScalarType::kPred;
}

// Checks a fixed parameter offset.
bool IsInside(int64_t offset, uint32_t bytes, uint32_t size) {
  return offset >= 0 && offset <= size && bytes <= size - static_cast<uint64_t>(offset);
}

// Emits the load of one element into `d`, which is exactly TypeBytes wide.
bool EmitLoad(Lowering& l, const Access& access, const Lowering::Address& address, int64_t extra, VirtualOperand d) {
  uint32_t bytes = access.element_bytes;
  int64_t offset = address.offset + extra;
  if (access.state_space == StateSpace::kParam) {
    OpFunction op = nullptr;
    bool has_base = address.base != kNoOperand;
    if (address.is_kernel_parameter && !has_base) {
      uint32_t size = 0;
      for (const FormalSlot& slot : l.parameters) size = std::max(size, slot.offset_bytes + slot.size_bytes);
      if (!IsInside(offset, bytes, size)) return l.Invalid("outside the kernel's parameters");
      op = bytes == 1 ? &OpLoadKernelParameter<uint16_t, 1>
                      : ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpLoadKernelParameter<T>; });
      l.Emit(op, d).i.imm = offset;
    } else if (address.is_kernel_parameter) {
      op = bytes == 1 ? &OpLoadByte : LoadOp(Space::kParam, bytes, true, false);
      Instruction& i = l.Emit(op, d, l.WideAddress(address)).i;
      i.imm = offset;
      i.x = static_cast<uint32_t>(Space::kParam);
    } else {
      if (!has_base && !IsInside(offset, bytes, l.parameter_bytes)) return l.Invalid("outside the parameters");
      op = bytes == 1 ? &OpLoadFrameParameter<uint16_t, 1>
                      : ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpLoadFrameParameter<T>; });
      VirtualOperand base = has_base ? l.WideAddress(address) : kNoOperand;
      Instruction& i = l.Emit(op, d, base).i;
      i.imm = offset;
      i.y = has_base;
    }
    return true;
  }
  bool is_shared = access.space == Space::kShared || access.space == Space::kSharedCluster;
  bool is_strong = l.Has("volatile") || l.Has("relaxed") || l.Has("acquire") || l.Has("mmio");
  bool is_wide = address.is_wide || !is_shared || bytes == 1 || is_strong;
  VirtualOperand base = is_wide ? l.WideAddress(address) : address.base;
  Instruction& i = l.Emit(bytes == 1 ? &OpLoadByte : LoadOp(access.space, bytes, is_wide, is_strong), d, base).i;
  // The poll compares with what the register held, which must stay what the last one left there.
  if (is_strong) i.f = d;
  i.imm = offset;
  i.x = static_cast<uint32_t>(access.space);
  return true;
}

bool EmitStore(Lowering& l, const Access& access, const Lowering::Address& address, int64_t extra,
               VirtualOperand value) {
  uint32_t bytes = access.element_bytes;
  int64_t offset = address.offset + extra;
  if (access.state_space == StateSpace::kParam) {
    if (!address.is_frame_parameter || address.base != kNoOperand) return l.Invalid("st.param needs a named parameter");
    if (!IsInside(offset, bytes, l.parameter_bytes)) return l.Invalid("outside the parameters");
    OpFunction op = bytes == 1 ? &OpStoreFrameByte
                               : ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpStoreFrameParameter<T>; });
    l.Emit(op, kNoOperand, kNoOperand, value).i.imm = offset;
    return true;
  }
  bool is_shared = access.space == Space::kShared || access.space == Space::kSharedCluster;
  bool is_wide = address.is_wide || !is_shared || bytes == 1;
  VirtualOperand base = is_wide ? l.WideAddress(address) : address.base;
  Instruction& i = l.Emit(bytes == 1 ? &OpStoreByte : StoreOp(access.space, bytes, is_wide), kNoOperand, base, value).i;
  i.imm = offset;
  i.x = static_cast<uint32_t>(access.space);
  return true;
}

// The element of a load or store as a register of exactly the memory type; `finish` moves a wider destination over.
struct Element {
  VirtualOperand exact;
  VirtualOperand wide = kNoOperand;
  uint32_t width = 0;
};

Element LoadTarget(Lowering& l, const ptx::Operand& operand, ScalarType type) {
  Element element;
  VirtualOperand d = l.DefineWide(operand, type, &element.width);
  uint32_t natural = TypeBytes(type);
  if (element.width == natural && MemoryBytes(type) != 1) return {d, kNoOperand, natural};
  if (element.width < natural || element.width > 8 || element.width == kPredicateClass) {
    l.Invalid("the register does not fit the type");
    return {l.Temporary(natural), kNoOperand, natural};
  }
  element.wide = d;
  element.exact = l.Temporary(natural);
  return element;
}

void FinishLoad(Lowering& l, const Element& element, ScalarType type) {
  if (element.wide != kNoOperand) l.Emit(ExtendOp(element.width, TypeBytes(type), type), element.wide, element.exact);
}

VirtualOperand StoreSource(Lowering& l, const ptx::Operand& operand, ScalarType type) {
  uint32_t width = 0;
  VirtualOperand value = l.UseWide(operand, type, &width);
  uint32_t natural = TypeBytes(type);
  if (width == natural) return value;
  if (width < natural || width > 8 || width == kPredicateClass) {
    l.Invalid("the register does not fit the type");
    return l.Constant(natural, 0);
  }
  VirtualOperand narrow = l.Temporary(natural);
  l.Emit(ExtendOp(natural, width, type), narrow, value);
  return narrow;
}

// b128: two 64-bit elements of a 128-bit register.
bool Decode128(Lowering& l, Access access, bool is_load) {
  access.type = ScalarType::kB64;
  access.element_bytes = 8;
  if (access.count != 1 || access.state_space == StateSpace::kParam) return false;
  Lowering::Address address = l.AddressOf(l.operand(is_load ? 1 : 0), access.state_space);
  VirtualOperand base = l.WideAddress(address);
  VirtualOperand parts[2] = {l.Temporary(8), l.Temporary(8)};
  if (!is_load) EmitSplit128(l, parts, l.Use(1, ScalarType::kB128));
  LoweredInstruction& lowered = l.Emit(is_load ? &OpLoadVector<uint64_t> : &OpStoreVector<uint64_t>, kNoOperand, base);
  lowered.i.imm = address.offset;
  lowered.i.x = static_cast<uint32_t>(access.space);
  lowered.i.y = 2;
  lowered.list = {parts[0], parts[1]};
  lowered.num_defined = is_load ? static_cast<uint32_t>(lowered.list.size()) : 0;
  if (is_load) EmitJoin128(l, l.Define(0, ScalarType::kB128), parts);
  return true;
}

bool DecodeAccess(Lowering& l, bool is_load) {
  Access access;
  if (!ParseAccess(l, &access)) return false;
  if (access.type == ScalarType::kB128) return Decode128(l, access, is_load);
  const ptx::Operand& place = l.operand(is_load ? 1 : 0);
  const ptx::Operand& value = l.operand(is_load ? 0 : 1);
  Lowering::Address address = l.AddressOf(place, access.state_space);
  if (access.count == 1) {
    const ptx::Operand& single = value.kind == OperandKind::kVector && value.parts.size() == 1 ? value.parts[0] : value;
    if (!is_load) return EmitStore(l, access, address, 0, StoreSource(l, single, access.type));
    Element element = LoadTarget(l, single, access.type);
    if (!EmitLoad(l, access, address, 0, element.exact)) return false;
    FinishLoad(l, element, access.type);
    return true;
  }
  if (value.kind != OperandKind::kVector || value.parts.size() != access.count)
    return l.Invalid("a vector operand of another length");
  bool by_element = access.state_space == StateSpace::kParam || access.element_bytes == 1;
  if (access.state_space != StateSpace::kParam && access.element_bytes == 1) {
    // Alignment of the whole is what distinguishes this from single accesses.
    EmitAlignmentCheck(l, l.WideAddress(address), address.offset, access.count);
  }
  std::vector<VirtualOperand> list;
  std::vector<Element> elements;
  if (by_element && is_load) {
    for (uint32_t k = 0; k < access.count; ++k) {
      // Into temporaries first: a destination may be the address register.
      elements.push_back({l.Temporary(TypeBytes(access.type)), kNoOperand, 0});
      if (!EmitLoad(l, access, address, int64_t{k} * access.element_bytes, elements.back().exact)) return false;
    }
    for (uint32_t k = 0; k < access.count; ++k) {
      uint32_t width = 0;
      VirtualOperand d = l.DefineWide(value.parts[k], access.type, &width);
      if (width < TypeBytes(access.type) || width > 8) return l.Invalid("the register does not fit the type");
      l.Emit(ExtendOp(width, TypeBytes(access.type), access.type), d, elements[k].exact);
    }
    return true;
  }
  for (uint32_t k = 0; k < access.count; ++k) {
    if (is_load) {
      elements.push_back(LoadTarget(l, value.parts[k], access.type));
      list.push_back(elements.back().exact);
    } else {
      list.push_back(StoreSource(l, value.parts[k], access.type));
      if (by_element && !EmitStore(l, access, address, int64_t{k} * access.element_bytes, list.back())) return false;
    }
  }
  if (by_element) return true;
  VirtualOperand base = l.WideAddress(address);
  OpFunction op = is_load
                      ? ForWidth(access.element_bytes, []<typename T>(T) -> OpFunction { return &OpLoadVector<T>; })
                      : ForWidth(access.element_bytes, []<typename T>(T) -> OpFunction { return &OpStoreVector<T>; });
  LoweredInstruction& lowered = l.Emit(op, kNoOperand, base);
  lowered.i.imm = address.offset;
  lowered.i.x = static_cast<uint32_t>(access.space);
  lowered.i.y = access.count;
  lowered.list = std::move(list);
  lowered.num_defined = is_load ? static_cast<uint32_t>(lowered.list.size()) : 0;
  for (const Element& element : elements) FinishLoad(l, element, access.type);
  return true;
}
bool DecodeLoad(Lowering& l) { return DecodeAccess(l, true); }
bool DecodeStore(Lowering& l) {
  if (l.Has("async") || l.Has("bulk")) return false;
  return DecodeAccess(l, false);
}

}  // namespace

void EmitFrameParameterLoad(Lowering& l, VirtualOperand d, uint32_t offset, uint32_t width_bytes) {
  if (width_bytes != 2 && width_bytes != 4 && width_bytes != 8) {
    l.Unsupported("a register parameter of this type");
    return;
  }
  l.Emit(ForWidth(width_bytes, []<typename T>(T) -> OpFunction { return &OpLoadFrameParameter<T>; }), d).i.imm = offset;
}
void EmitFrameParameterStore(Lowering& l, VirtualOperand a, uint32_t offset, uint32_t width_bytes) {
  if (width_bytes != 2 && width_bytes != 4 && width_bytes != 8) {
    l.Unsupported("a register parameter of this type");
    return;
  }
  l.Emit(ForWidth(width_bytes, []<typename T>(T) -> OpFunction { return &OpStoreFrameParameter<T>; }), kNoOperand,
         kNoOperand, a)
      .i.imm = offset;
}

void AddMemoryOpcodes(OpcodeTable& table) {
  table["ld"] = {&DecodeLoad};
  table["ldu"] = {&DecodeLoad};
  table["st"] = {&DecodeStore};
}

}  // namespace tally::sim_driver
