// Atomic operations of memory: atom, red. All are sequentially consistent here, whatever their .sem and .scope say:
// stronger is allowed, and they hold between blocks, grids and the host.
#include <cmath>

#include "sim-driver/engine/half.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/type_switch.h"

namespace tally::sim_driver {
namespace {

// a = address, b = operand, c = second operand, d = old value (e.g. nobody's register for red); x = Space.
template <typename T, typename Body>
void ForAddresses(Warp& w, const Instruction& i, Body body) {
  // Whether any lane's result differs from what its register held: if never, somebody is spinning.
  bool changed = false;
  const T* d = Target<T>(w, i.d);
  const uint64_t* base = Source<uint64_t>(w, i.a);
  auto space = static_cast<Space>(i.x);
  bool is_global = space <= Space::kConst;
  MemoryView::Range& range = w.memory->RangeFor(&i);
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = base[lane] + static_cast<uint64_t>(i.imm);
    auto* at = reinterpret_cast<T*>(address);
    if (!is_global || !range.Contains(address, sizeof(T)) || address % sizeof(T) != 0 || !range.is_writable)
        [[unlikely]] {
      at = reinterpret_cast<T*>(ResolveAddress(w, i, lane, space, address, sizeof(T), sizeof(T), true, &range));
      if (at == nullptr) return;
    }
    T before = d[lane];
    body(lane, at);
    changed |= d[lane] != before;
  }
  // Locks are taken by cas and exch; other operations that change nothing are just work.
  if (i.f != 0) w.NotePoll(changed);
}

template <typename T, auto kUpdate>
void OpAtomic(Warp& w, const Instruction& i) {
  const T* b = Source<T>(w, i.b);
  T* d = Target<T>(w, i.d);
  ForAddresses<T>(w, i, [&](uint32_t lane, T* at) {
    T value = b[lane];  // d may be the same register
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, kUpdate(old, value), true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    d[lane] = old;
  });
}
template <typename T>
void OpAtomicAdd(Warp& w, const Instruction& i) {
  const T* b = Source<T>(w, i.b);
  T* d = Target<T>(w, i.d);
  ForAddresses<T>(w, i, [&](uint32_t lane, T* at) { d[lane] = __atomic_fetch_add(at, b[lane], __ATOMIC_SEQ_CST); });
}
template <typename T>
void OpAtomicExchange(Warp& w, const Instruction& i) {
  const T* b = Source<T>(w, i.b);
  T* d = Target<T>(w, i.d);
  ForAddresses<T>(w, i, [&](uint32_t lane, T* at) { d[lane] = __atomic_exchange_n(at, b[lane], __ATOMIC_SEQ_CST); });
}
template <typename T>
void OpAtomicCas(Warp& w, const Instruction& i) {
  const T* b = Source<T>(w, i.b);
  const T* c = Source<T>(w, i.c);
  T* d = Target<T>(w, i.d);
  ForAddresses<T>(w, i, [&](uint32_t lane, T* at) {
    T expected = b[lane];
    __atomic_compare_exchange_n(at, &expected, c[lane], false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    d[lane] = expected;
  });
}
using Word128 = unsigned __int128;
void OpAtomic128(Warp& w, const Instruction& i) {  // y: exchange rather than compare and swap
  const auto* b = Source<Word128>(w, i.b);
  const auto* c = Source<Word128>(w, i.c);
  auto* d = Target<Word128>(w, i.d);
  ForAddresses<Word128>(w, i, [&](uint32_t lane, Word128* at) {
    if (!i.y) {
      d[lane] = __sync_val_compare_and_swap(at, b[lane], c[lane]);
      return;
    }
    Word128 value = b[lane];
    Word128 old = 0;
    for (;;) {
      Word128 seen = __sync_val_compare_and_swap(at, old, value);
      if (seen == old) break;
      old = seen;
    }
    d[lane] = old;
  });
}

struct And {
  template <typename T>
  T operator()(T old, T b) const {
    return old & b;
  }
};
struct Or {
  template <typename T>
  T operator()(T old, T b) const {
    return old | b;
  }
};
struct Xor {
  template <typename T>
  T operator()(T old, T b) const {
    return old ^ b;
  }
};
template <typename T>
struct Min {
  template <typename U>
  U operator()(U old, U b) const {
    return static_cast<T>(b) < static_cast<T>(old) ? b : old;
  }
};
template <typename T>
struct Max {
  template <typename U>
  U operator()(U old, U b) const {
    return static_cast<T>(old) < static_cast<T>(b) ? b : old;
  }
};
struct Increment {
  uint32_t operator()(uint32_t old, uint32_t b) const { return old >= b ? 0 : old + 1; }
};
struct Decrement {
  uint32_t operator()(uint32_t old, uint32_t b) const { return old == 0 || old > b ? b : old - 1; }
};
struct AddFloat {
  uint32_t operator()(uint32_t old, uint32_t b) const {
    return std::bit_cast<uint32_t>(Canonical(std::bit_cast<float>(old) + std::bit_cast<float>(b)));
  }
  uint64_t operator()(uint64_t old, uint64_t b) const {
    return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
  }
};
enum class HalfKind { kAdd, kMin, kMax };
template <typename F, HalfKind kKind>
struct HalfUpdate {
  uint16_t operator()(uint16_t old, uint16_t b) const {
    float x = F::ToFloat(old);
    float y = F::ToFloat(b);
    if (kKind == HalfKind::kAdd) return F::FromFloat(x + y);
    if (x != x || y != y) return x == x ? old : y == y ? b : F::kNan;
    bool takes_b =
        kKind == HalfKind::kMin ? y < x || (y == x && std::signbit(y)) : y > x || (y == x && !std::signbit(y));
    return takes_b ? b : old;
  }
  uint32_t operator()(uint32_t old, uint32_t b) const {
    return (*this)(static_cast<uint16_t>(old), static_cast<uint16_t>(b)) |
           uint32_t{(*this)(static_cast<uint16_t>(old >> 16), static_cast<uint16_t>(b >> 16))} << 16;
  }
};

template <HalfKind kKind>
OpFunction HalfOp(ScalarType type) {
  switch (type) {
    case ScalarType::kF16:
      return &OpAtomic<uint16_t, HalfUpdate<F16, kKind>{}>;
    case ScalarType::kF16x2:
      return &OpAtomic<uint32_t, HalfUpdate<F16, kKind>{}>;
    case ScalarType::kBf16:
      return &OpAtomic<uint16_t, HalfUpdate<Bf16, kKind>{}>;
    case ScalarType::kBf16x2:
      return &OpAtomic<uint32_t, HalfUpdate<Bf16, kKind>{}>;
    default:
      return nullptr;
  }
}

OpFunction MinMaxOp(ScalarType type, bool is_min) {
  switch (type) {
    case ScalarType::kS32:
      return is_min ? &OpAtomic<uint32_t, Min<int32_t>{}> : &OpAtomic<uint32_t, Max<int32_t>{}>;
    case ScalarType::kU32:
      return is_min ? &OpAtomic<uint32_t, Min<uint32_t>{}> : &OpAtomic<uint32_t, Max<uint32_t>{}>;
    case ScalarType::kS64:
      return is_min ? &OpAtomic<uint64_t, Min<int64_t>{}> : &OpAtomic<uint64_t, Max<int64_t>{}>;
    case ScalarType::kU64:
      return is_min ? &OpAtomic<uint64_t, Min<uint64_t>{}> : &OpAtomic<uint64_t, Max<uint64_t>{}>;
    default:
      return is_min ? HalfOp<HalfKind::kMin>(type) : HalfOp<HalfKind::kMax>(type);
  }
}

template <typename F>
OpFunction BitwiseOp(uint32_t bytes) {
  return bytes == 4 ? &OpAtomic<uint32_t, F{}> : bytes == 8 ? &OpAtomic<uint64_t, F{}> : nullptr;
}

OpFunction AtomicOp(std::string_view what, ScalarType type, uint32_t bytes) {
  if (what == "add") {
    if (type == ScalarType::kF32) return &OpAtomic<uint32_t, AddFloat{}>;
    if (type == ScalarType::kF64) return &OpAtomic<uint64_t, AddFloat{}>;
    if (IsFloat(type)) return HalfOp<HalfKind::kAdd>(type);
    return bytes == 4 ? &OpAtomicAdd<uint32_t> : bytes == 8 ? &OpAtomicAdd<uint64_t> : nullptr;
  }
  if (what == "min" || what == "max") return MinMaxOp(type, what == "min");
  if (what == "and") return BitwiseOp<And>(bytes);
  if (what == "or") return BitwiseOp<Or>(bytes);
  if (what == "xor") return BitwiseOp<Xor>(bytes);
  if (what == "exch")
    return bytes == 16  ? &OpAtomic128
           : bytes == 4 ? &OpAtomicExchange<uint32_t>
           : bytes == 8 ? &OpAtomicExchange<uint64_t>
                        : nullptr;
  if (what == "cas")
    return bytes == 16  ? &OpAtomic128
           : bytes == 2 ? &OpAtomicCas<uint16_t>
           : bytes == 4 ? &OpAtomicCas<uint32_t>
           : bytes == 8 ? &OpAtomicCas<uint64_t>
                        : nullptr;
  if (what == "inc" && type == ScalarType::kU32) return &OpAtomic<uint32_t, Increment{}>;
  if (what == "dec" && type == ScalarType::kU32) return &OpAtomic<uint32_t, Decrement{}>;
  return nullptr;
}

bool DecodeAtomic(Lowering& l) {
  bool is_red = l.instruction().opcode == "red";
  if (l.Has("async")) return false;
  std::string_view what;
  uint32_t count = 1;
  for (std::string_view modifier : l.instruction().modifiers) {
    for (std::string_view name : {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"})
      if (modifier == name) what = name;
    if (modifier == "v2") count = 2;
    if (modifier == "v4") count = 4;
    if (modifier == "v8") count = 8;
  }
  ScalarType type = l.Type();
  uint32_t bytes = TypeBytes(type);
  OpFunction op = AtomicOp(what, type, bytes);
  if (op == nullptr) return false;
  StateSpace state_space = StateSpace::kNone;
  Space space = SpaceOf(l, &state_space);
  size_t first = is_red ? 0 : 1;
  Lowering::Address address = l.AddressOf(l.operand(first), state_space);
  VirtualOperand base = l.WideAddress(address);
  const ptx::Operand& value = l.operand(first + 1);
  if (count > 1) {
    // A vector is as many atomic operations; only each element is atomic, as PTX says.
    if (value.kind != OperandKind::kVector || value.parts.size() != count)
      return l.Invalid("a vector operand of another length");
    EmitAlignmentCheck(l, base, address.offset, count * bytes);
  }
  std::vector<VirtualOperand> results;
  for (uint32_t k = 0; k < count; ++k) {
    VirtualOperand b = l.Use(count > 1 ? value.parts[k] : value, type);
    VirtualOperand c = what == "cas" ? l.Use(first + 2, type) : b;
    results.push_back(l.Temporary(bytes));
    Instruction& i = l.Emit(op, results.back(), base, b, c).i;
    i.imm = address.offset + int64_t{k} * bytes;
    i.x = static_cast<uint32_t>(space);
    i.y = what == "exch";
    // Keeps the register of the old value alive, for the comparison in ForAddresses. (A lone first slot reads as 0 and
    // only loses the courtesy of giving way.)
    if (!is_red && (what == "cas" || what == "exch")) i.f = results.back();
  }
  if (is_red) return true;
  const ptx::Operand& to = l.operand(0);
  if (count > 1 && (to.kind != OperandKind::kVector || to.parts.size() != count))
    return l.Invalid("a vector operand of another length");
  for (uint32_t k = 0; k < count; ++k) l.Emit(MoveOp(bytes), l.Define(count > 1 ? to.parts[k] : to, type), results[k]);
  return true;
}

void OpFence(Warp&, const Instruction&) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

bool DecodeFence(Lowering& l) {
  l.Emit(&OpFence);
  return true;
}

}  // namespace

void AddAtomicOpcodes(OpcodeTable& table) {
  table["atom"] = {&DecodeAtomic};
  table["red"] = {&DecodeAtomic};
  table["fence"] = {&DecodeFence};
  table["membar"] = {&DecodeFence};
}

}  // namespace tally::sim_driver
