// Bits: and, or, xor, not, cnot, lop3, shl, shr, shf, bfe, bfi, bfind, brev, clz, popc, prmt, fns, szext, bmsk.
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/type_switch.h"

namespace tally::sim_driver {
namespace {

struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct Not {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <typename T>
  T operator()(T a) const {
    return a == 0;
  }
};
struct ShiftLeft {
  template <typename T>
  T operator()(T a, uint32_t n) const {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n);
  }
};
struct ShiftRight {
  template <typename T>
  T operator()(T a, uint32_t n) const {
    return static_cast<T>(a >> std::min<uint32_t>(n, 8 * sizeof(T) - 1) >>
                          (!std::is_signed_v<T> && n >= 8 * sizeof(T)));
  }
};
template <bool kLeft, bool kClamp>
struct Funnel {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t n) const {
    n = kClamp ? std::min(n, 32u) : n & 31;
    uint64_t both = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>(kLeft ? both << n >> 32 : both >> n);
  }
};
struct CountZeros {
  template <typename T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct CountOnes {
  template <typename T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct Reverse {
  template <typename T>
  T operator()(T a) const {
    if constexpr (sizeof(T) == 8) {
      return uint64_t{(*this)(static_cast<uint32_t>(a))} << 32 | (*this)(static_cast<uint32_t>(a >> 32));
    } else {
      a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
      a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
      a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
      return __builtin_bswap32(a);
    }
  }
};
template <bool kShiftAmount>
struct FindBit {
  template <typename T>
  uint32_t operator()(T a) const {
    using U = std::make_unsigned_t<T>;
    auto bits = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
    if (bits == 0) return ~0u;
    auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return kShiftAmount ? zeros : 8 * sizeof(T) - 1 - zeros;
  }
};
struct Extract {
  template <typename T>
  T operator()(T a, uint32_t b, uint32_t c) const {
    constexpr uint32_t kMost = 8 * sizeof(T) - 1;
    uint32_t pos = b & 0xff;
    uint32_t len = c & 0xff;
    T sign = 0;
    if (std::is_signed_v<T> && len != 0) sign = a >> std::min(pos + len - 1, kMost) & 1;
    using U = std::make_unsigned_t<T>;
    U field = pos > kMost ? U{0} : static_cast<U>(static_cast<U>(a) >> pos);
    uint32_t valid = std::min(len, pos > kMost ? 0 : kMost + 1 - pos);
    U mask = valid > kMost ? ~U{0} : static_cast<U>((U{1} << valid) - 1);
    U result = field & mask;
    if (sign) result |= static_cast<U>(~mask);
    return static_cast<T>(result);
  }
};
// bfi: f = insert a into b at c for d bits; operands a, b, c and f.
template <typename T>
void OpInsert(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  const T* b = Source<T>(w, i.b);
  const uint32_t* positions = Source<uint32_t>(w, i.c);
  const uint32_t* lengths = Source<uint32_t>(w, i.f);
  ForLanes(w.mask, [=](uint32_t l) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    uint32_t pos = positions[l] & 0xff;
    uint32_t len = lengths[l] & 0xff;
    T mask = len >= kBits ? ~T{0} : static_cast<T>((T{1} << len) - 1);
    mask = pos >= kBits ? 0 : static_cast<T>(mask << pos);
    T field = pos >= kBits ? 0 : static_cast<T>(a[l] << pos);
    d[l] = (b[l] & ~mask) | (field & mask);
  });
}
// lop3: imm = table.
void OpLop3(Warp& w, const Instruction& i) {
  uint32_t* d = Target<uint32_t>(w, i.d);
  const uint32_t* a = Source<uint32_t>(w, i.a);
  const uint32_t* b = Source<uint32_t>(w, i.b);
  const uint32_t* c = Source<uint32_t>(w, i.c);
  uint32_t t[8];
  for (int k = 0; k < 8; ++k) t[k] = i.imm >> k & 1 ? ~0u : 0;
  ForLanes(w.mask, [=](uint32_t l) {
    uint32_t x = a[l];
    uint32_t y = b[l];
    uint32_t z = c[l];
    d[l] = (t[0] & ~x & ~y & ~z) | (t[1] & ~x & ~y & z) | (t[2] & ~x & y & ~z) | (t[3] & ~x & y & z) |
           (t[4] & x & ~y & ~z) | (t[5] & x & ~y & z) | (t[6] & x & y & ~z) | (t[7] & x & y & z);
  });
}
void OpLop3Predicate(Warp& w, const Instruction& i) {  // e = (d != 0) and / or (x) f
  const uint32_t* d = Target<uint32_t>(w, i.d);
  uint32_t nonzero = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) nonzero |= static_cast<uint32_t>(d[lane] != 0) << lane;
  uint32_t q = SourcePredicate(w, i.f);
  SetPredicate(w, i.e, i.x ? nonzero | q : nonzero & q);
}

enum class PermuteMode : uint32_t { kIndex, kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };
template <PermuteMode kMode>
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint64_t both = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      uint32_t n = c & 3;
      uint32_t select = 0;
      bool sign = false;
      switch (kMode) {
        case PermuteMode::kIndex:
          select = c >> (4 * k) & 7;
          sign = c >> (4 * k) & 8;
          break;
        case PermuteMode::kF4e:
          select = n + k;
          break;
        case PermuteMode::kB4e:
          select = (n - k) & 7;
          break;
        case PermuteMode::kRc8:
          select = n;
          break;
        case PermuteMode::kEcl:
          select = std::max(k, n);
          break;
        case PermuteMode::kEcr:
          select = std::min(k, n);
          break;
        case PermuteMode::kRc16:
          select = (n & 1) * 2 + (k & 1);
          break;
      }
      uint32_t byte = both >> (8 * select) & 0xff;
      if (sign) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * k);
    }
    return result;
  }
};
struct FindNthSet {
  uint32_t operator()(uint32_t mask, uint32_t base, int32_t offset) const {
    if (base > 31) return ~0u;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    int32_t step = offset > 0 ? 1 : -1;
    int32_t left = std::abs(offset);
    for (int32_t at = static_cast<int32_t>(base); at >= 0 && at < 32; at += step)
      if ((mask >> at & 1) && --left == 0) return static_cast<uint32_t>(at);
    return ~0u;
  }
};
template <bool kClamp>
struct Bitmask {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    if (!kClamp) a &= 31, b &= 31;
    if (a >= 32) return 0;
    uint64_t ones = b >= 32 ? ~uint64_t{0} : (uint64_t{1} << b) - 1;
    return static_cast<uint32_t>(ones << a);
  }
};
template <bool kClamp, bool kSigned>
struct SignExtend {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    uint32_t n = kClamp ? std::min(b, 32u) : b & 31;
    if (n == 0) return 0;
    if (n >= 32) return a;
    if (kSigned) return static_cast<uint32_t>(static_cast<int32_t>(a << (32 - n)) >> (32 - n));
    return a & ((1u << n) - 1);
  }
};

template <uint32_t kKind>  // 0 and, 1 or, 2 xor
void OpPredicateLogic(Warp& w, const Instruction& i) {
  uint32_t a = SourcePredicate(w, i.a);
  uint32_t b = SourcePredicate(w, i.b);
  SetPredicate(w, i.d, kKind == 0 ? a & b : kKind == 1 ? a | b : a ^ b);
}
void OpNotPredicate(Warp& w, const Instruction& i) { SetPredicate(w, i.d, ~SourcePredicate(w, i.a)); }

template <typename F>
bool DecodeLogic(Lowering& l, uint32_t kind) {
  ScalarType type = l.Type();
  if (type == ScalarType::kPred) {
    VirtualOperand a = l.UsePredicate(size_t{1});
    VirtualOperand b = l.UsePredicate(size_t{2});
    l.Emit(kind == 0   ? &OpPredicateLogic<0>
           : kind == 1 ? &OpPredicateLogic<1>
                       : &OpPredicateLogic<2>,
           l.DefinePredicate(size_t{0}), a, b);
    return true;
  }
  OpFunction op = ForWidth(TypeBytes(type), []<typename T>(T) -> OpFunction { return &Binary<T, T, T, F{}>; });
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  l.Emit(op, l.Define(0, type), a, b);
  return true;
}
bool DecodeAnd(Lowering& l) { return DecodeLogic<And>(l, 0); }
bool DecodeOr(Lowering& l) { return DecodeLogic<Or>(l, 1); }
bool DecodeXor(Lowering& l) { return DecodeLogic<Xor>(l, 2); }

bool DecodeNot(Lowering& l) {
  ScalarType type = l.Type();
  if (type == ScalarType::kPred) {
    VirtualOperand a = l.UsePredicate(size_t{1});
    l.Emit(&OpNotPredicate, l.DefinePredicate(size_t{0}), a);
    return true;
  }
  OpFunction op = ForWidth(TypeBytes(type), []<typename T>(T) -> OpFunction { return &Unary<T, T, Not{}>; });
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  l.Emit(op, l.Define(0, type), a);
  return true;
}

template <typename F>
bool DecodeUnaryBits(Lowering& l, ScalarType result) {
  ScalarType type = l.Type();
  if (TypeBytes(type) != 4 && TypeBytes(type) != 8) return false;
  bool is_wide = TypeBytes(type) == 8;
  bool is_signed = IsSigned(type);
  OpFunction op = nullptr;
  if constexpr (std::is_same_v<F, FindBit<true>> || std::is_same_v<F, FindBit<false>>) {
    op = is_wide ? (is_signed ? &Unary<uint32_t, int64_t, F{}> : &Unary<uint32_t, uint64_t, F{}>)
                 : (is_signed ? &Unary<uint32_t, int32_t, F{}> : &Unary<uint32_t, uint32_t, F{}>);
  } else if constexpr (std::is_same_v<F, Reverse>) {
    op = is_wide ? &Unary<uint64_t, uint64_t, F{}> : &Unary<uint32_t, uint32_t, F{}>;
    result = type;
  } else {
    op = is_wide ? &Unary<uint32_t, uint64_t, F{}> : &Unary<uint32_t, uint32_t, F{}>;
  }
  VirtualOperand a = l.Use(1, type);
  l.Emit(op, l.Define(0, result), a);
  return true;
}
bool DecodeClz(Lowering& l) { return DecodeUnaryBits<CountZeros>(l, ScalarType::kU32); }
bool DecodePopc(Lowering& l) { return DecodeUnaryBits<CountOnes>(l, ScalarType::kU32); }
bool DecodeBrev(Lowering& l) { return DecodeUnaryBits<Reverse>(l, ScalarType::kB32); }
bool DecodeBfind(Lowering& l) {
  return l.Has("shiftamt") ? DecodeUnaryBits<FindBit<true>>(l, ScalarType::kU32)
                           : DecodeUnaryBits<FindBit<false>>(l, ScalarType::kU32);
}

bool DecodeCnot(Lowering& l) {
  ScalarType type = l.Type();
  OpFunction op = ForWidth(TypeBytes(type), []<typename T>(T) -> OpFunction { return &Unary<T, T, LogicalNot{}>; });
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  l.Emit(op, l.Define(0, type), a);
  return true;
}

bool DecodeShift(Lowering& l) {
  ScalarType type = l.Type();
  bool is_left = l.instruction().opcode == "shl";
  OpFunction op =
      is_left
          ? ForInteger(Unsigned(type), []<typename T>(T) -> OpFunction { return &Binary<T, T, uint32_t, ShiftLeft{}>; })
          : ForInteger(type, []<typename T>(T) -> OpFunction { return &Binary<T, T, uint32_t, ShiftRight{}>; });
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, ScalarType::kU32);
  l.Emit(op, l.Define(0, type), a, b);
  return true;
}

bool DecodeFunnel(Lowering& l) {
  bool is_left = l.Modifier(0) == "l";
  bool clamps = l.Has("clamp");
  using U = uint32_t;
  OpFunction op =
      is_left ? (clamps ? &Ternary<U, U, U, U, Funnel<true, true>{}> : &Ternary<U, U, U, U, Funnel<true, false>{}>)
              : (clamps ? &Ternary<U, U, U, U, Funnel<false, true>{}> : &Ternary<U, U, U, U, Funnel<false, false>{}>);
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  VirtualOperand c = l.Use(3, ScalarType::kU32);
  l.Emit(op, l.Define(0, ScalarType::kB32), a, b, c);
  return true;
}

bool DecodeBfe(Lowering& l) {
  ScalarType type = l.Type();
  OpFunction op = TypeBytes(type) < 4 ? nullptr : ForInteger(type, []<typename T>(T) -> OpFunction {
    return &Ternary<T, T, uint32_t, uint32_t, Extract{}>;
  });
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, ScalarType::kU32);
  VirtualOperand c = l.Use(3, ScalarType::kU32);
  l.Emit(op, l.Define(0, type), a, b, c);
  return true;
}

bool DecodeBfi(Lowering& l) {
  ScalarType type = l.Type();
  if (TypeBytes(type) != 4 && TypeBytes(type) != 8) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  VirtualOperand c = l.Use(3, ScalarType::kU32);
  VirtualOperand f = l.Use(4, ScalarType::kU32);
  l.Emit(TypeBytes(type) == 4 ? &OpInsert<uint32_t> : &OpInsert<uint64_t>, l.Define(0, type), a, b, c).i.f = f;
  return true;
}

bool DecodeLop3(Lowering& l) {
  bool is_predicate = l.Modifier(0) == "or" || l.Modifier(0) == "and";
  const ptx::Operand& to = l.operand(0);
  bool is_pair = to.kind == OperandKind::kPair && to.parts.size() == 2;
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  VirtualOperand c = l.Use(3, ScalarType::kB32);
  if (l.operand(4).kind != OperandKind::kInteger) return l.Invalid("lop3 needs a constant table");
  VirtualOperand d = l.Define(is_pair ? to.parts[0] : to, ScalarType::kB32);
  l.Emit(&OpLop3, d, a, b, c).i.imm = static_cast<int64_t>(l.operand(4).bits & 0xff);
  if (!is_predicate) return true;
  if (!is_pair) return l.Invalid("lop3 with a predicate writes d|p");
  VirtualOperand q = l.UsePredicate(l.operand(5));
  VirtualOperand p = l.DefinePredicate(to.parts[1]);
  Instruction& i = l.Emit(&OpLop3Predicate, kNoOperand, kNoOperand).i;
  i.a = d;  // read; the operation finds it in d
  i.d = d;
  i.e = p;
  i.f = q;
  i.x = l.Modifier(0) == "or";
  return true;
}

bool DecodePrmt(Lowering& l) {
  using U = uint32_t;
  OpFunction op = &Ternary<U, U, U, U, Permute<PermuteMode::kIndex>{}>;
  if (l.Has("f4e")) op = &Ternary<U, U, U, U, Permute<PermuteMode::kF4e>{}>;
  if (l.Has("b4e")) op = &Ternary<U, U, U, U, Permute<PermuteMode::kB4e>{}>;
  if (l.Has("rc8")) op = &Ternary<U, U, U, U, Permute<PermuteMode::kRc8>{}>;
  if (l.Has("ecl")) op = &Ternary<U, U, U, U, Permute<PermuteMode::kEcl>{}>;
  if (l.Has("ecr")) op = &Ternary<U, U, U, U, Permute<PermuteMode::kEcr>{}>;
  if (l.Has("rc16")) op = &Ternary<U, U, U, U, Permute<PermuteMode::kRc16>{}>;
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  VirtualOperand c = l.Use(3, ScalarType::kB32);
  l.Emit(op, l.Define(0, ScalarType::kB32), a, b, c);
  return true;
}

bool DecodeFns(Lowering& l) {
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  VirtualOperand c = l.Use(3, ScalarType::kS32);
  l.Emit(&Ternary<uint32_t, uint32_t, uint32_t, int32_t, FindNthSet{}>, l.Define(0, ScalarType::kB32), a, b, c);
  return true;
}

bool DecodeBmsk(Lowering& l) {
  using U = uint32_t;
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  l.Emit(l.Has("clamp") ? &Binary<U, U, U, Bitmask<true>{}> : &Binary<U, U, U, Bitmask<false>{}>,
         l.Define(0, ScalarType::kB32), a, b);
  return true;
}

bool DecodeSzext(Lowering& l) {
  using U = uint32_t;
  bool clamps = l.Has("clamp");
  bool is_signed = IsSigned(l.Type());
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  l.Emit(clamps
             ? (is_signed ? &Binary<U, U, U, SignExtend<true, true>{}> : &Binary<U, U, U, SignExtend<true, false>{}>)
             : (is_signed ? &Binary<U, U, U, SignExtend<false, true>{}> : &Binary<U, U, U, SignExtend<false, false>{}>),
         l.Define(0, ScalarType::kB32), a, b);
  return true;
}

}  // namespace

OpFunction NotPredicateOp() { return &OpNotPredicate; }

void AddBitOpcodes(OpcodeTable& table) {
  table["and"] = {&DecodeAnd};
  table["or"] = {&DecodeOr};
  table["xor"] = {&DecodeXor};
  table["not"] = {&DecodeNot};
  table["cnot"] = {&DecodeCnot};
  table["lop3"] = {&DecodeLop3};
  table["shl"] = {&DecodeShift};
  table["shr"] = {&DecodeShift};
  table["shf"] = {&DecodeFunnel};
  table["bfe"] = {&DecodeBfe};
  table["bfi"] = {&DecodeBfi};
  table["bfind"] = {&DecodeBfind};
  table["brev"] = {&DecodeBrev};
  table["clz"] = {&DecodeClz};
  table["popc"] = {&DecodePopc};
  table["prmt"] = {&DecodePrmt};
  table["fns"] = {&DecodeFns};
  table["bmsk"] = {&DecodeBmsk};
  table["szext"] = {&DecodeSzext};
}

}  // namespace tally::sim_driver
