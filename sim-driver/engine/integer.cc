// Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, dp4a, dp2a, carry chains; mov, selp.
#include <algorithm>
#include <limits>

#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/type_switch.h"

namespace tally::sim_driver {
namespace {

// Computed in unsigned 32 or 64 bits, so that overflow wraps instead of being undefined.
template <typename T>
using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide<T>(a) + Wide<T>(b));
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide<T>(a) - Wide<T>(b));
  }
};
struct MulLo {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide<T>(a) * Wide<T>(b));
  }
};
template <typename T>
struct Widened;
template <>
struct Widened<uint16_t> {
  using Type = uint32_t;
};
template <>
struct Widened<int16_t> {
  using Type = int32_t;
};
template <>
struct Widened<uint32_t> {
  using Type = uint64_t;
};
template <>
struct Widened<int32_t> {
  using Type = int64_t;
};
template <>
struct Widened<uint64_t> {
  using Type = unsigned __int128;
};
template <>
struct Widened<int64_t> {
  using Type = __int128;
};
struct MulHi {
  template <typename T>
  T operator()(T a, T b) const {
    using W = typename Widened<T>::Type;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <typename T>
  auto operator()(T a, T b) const {
    using W = typename Widened<T>::Type;
    return static_cast<W>(static_cast<W>(a) * static_cast<W>(b));
  }
};
struct MadLo {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(MulLo()(a, b), c);
  }
};
struct MadHi {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(MulHi()(a, b), c);
  }
};
struct MadWide {
  template <typename T, typename W>
  W operator()(T a, T b, W c) const {
    return Add()(static_cast<W>(MulWide()(a, b)), c);
  }
};
template <bool kMultiply>
struct Saturated {  // add.sat, sub.sat (kMultiply false), of s32 only
  int32_t operator()(int32_t a, int32_t b) const {
    int64_t r = kMultiply ? int64_t{a} - b : int64_t{a} + b;
    return static_cast<int32_t>(std::clamp<int64_t>(r, INT32_MIN, INT32_MAX));
  }
};
struct MadHiSaturated {
  int32_t operator()(int32_t a, int32_t b, int32_t c) const { return Saturated<false>()(MulHi()(a, b), c); }
};
// Division by zero gives all ones (as NVIDIA devices do), the remainder then is the dividend.
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Sub()(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Relu {
  template <typename T>
  T operator()(T a) const {
    return a < 0 ? T{0} : a;
  }
};
struct Abs {
  template <typename T>
  T operator()(T a) const {
    return a < 0 ? Sub()(T{0}, a) : a;
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    return Sub()(T{0}, a);
  }
};
struct Sad {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(c, a < b ? Sub()(b, a) : Sub()(a, b));
  }
};
struct Mul24 {
  template <typename T>
  static int64_t Product(T a, T b) {
    auto low = [](T v) -> int64_t {
      return std::is_signed_v<T> ? int64_t{static_cast<int32_t>(static_cast<uint32_t>(v) << 8) >> 8}
                                 : int64_t{static_cast<uint32_t>(v) & 0xffffff};
    };
    return low(a) * low(b);
  }
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Product(a, b));
  }
};
struct Mul24Hi {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Mul24::Product(a, b) >> 16);
  }
};
struct Mad24 {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(Mul24()(a, b), c);
  }
};
struct Mad24Hi {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(Mul24Hi()(a, b), c);
  }
};
// Two 16-bit lanes in a word.
template <typename T, typename F>
struct Pairwise {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    auto low = static_cast<uint16_t>(F()(static_cast<T>(a), static_cast<T>(b)));
    auto high = static_cast<uint16_t>(F()(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return low | uint32_t{high} << 16;
  }
};
struct PairwiseRelu {
  uint32_t operator()(uint32_t a) const {
    return (a & 0x8000 ? 0 : a & 0xffff) | (a & 0x80000000 ? 0 : a & 0xffff0000);
  }
};
template <bool kSignedA, bool kSignedB, int kKind>  // 4: dp4a; 2: dp2a.lo; 3: dp2a.hi
struct DotProduct {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (int k = 0; k < (kKind == 4 ? 4 : 2); ++k) {
      uint32_t left = kKind == 4 ? (a >> (8 * k)) & 0xff : (a >> (16 * k)) & 0xffff;
      uint32_t right = (b >> (8 * (kKind == 3 ? k + 2 : k))) & 0xff;
      int32_t x = kKind == 4 ? (kSignedA ? int32_t{static_cast<int8_t>(left)} : static_cast<int32_t>(left))
                             : (kSignedA ? int32_t{static_cast<int16_t>(left)} : static_cast<int32_t>(left));
      int32_t y = kSignedB ? int32_t{static_cast<int8_t>(right)} : static_cast<int32_t>(right);
      c += static_cast<uint32_t>(x * y);
    }
    return c;
  }
};

// ---- with the carry flag: d = a + b (+ carry f), carry out to e. Subtraction borrows.
template <typename T, bool kSubtract, bool kUsesCarry>
void OpCarry(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  const T* b = Source<T>(w, i.b);
  uint32_t carry_in = kUsesCarry ? SourcePredicate(w, i.f) : 0;
  uint32_t carry_out = 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    T c = (carry_in >> lane) & 1;
    T sum = 0;
    bool first =
        kSubtract ? __builtin_sub_overflow(a[lane], b[lane], &sum) : __builtin_add_overflow(a[lane], b[lane], &sum);
    bool second = kSubtract ? __builtin_sub_overflow(sum, c, &sum) : __builtin_add_overflow(sum, c, &sum);
    d[lane] = sum;
    if (first || second) carry_out |= 1u << lane;
  }
  SetPredicate(w, i.e, carry_out);
}

template <typename T>
OpFunction CarryOp(bool subtract, bool uses_carry) {
  if (subtract) return uses_carry ? &OpCarry<T, true, true> : &OpCarry<T, true, false>;
  return uses_carry ? &OpCarry<T, false, true> : &OpCarry<T, false, false>;
}

void EmitCarry(Lowering& l, bool subtract, bool uses_carry, bool sets_carry, uint32_t bytes, VirtualOperand d,
               VirtualOperand a, VirtualOperand b) {
  VirtualOperand in = uses_carry ? l.CarryFlag() : kNoOperand;
  VirtualOperand out = sets_carry ? l.CarryFlag() : l.Temporary(kPredicateClass);
  Instruction& i =
      l.Emit(bytes == 8 ? CarryOp<uint64_t>(subtract, uses_carry) : CarryOp<uint32_t>(subtract, uses_carry), d, a, b).i;
  i.e = out;
  i.f = in;
}

bool EmitBinary(Lowering& l, OpFunction op, ScalarType type) {
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  l.Emit(op, l.Define(0, type), a, b);
  return true;
}

template <typename F>
OpFunction BinaryOp(ScalarType type) {
  return ForInteger(type, []<typename T>(T) -> OpFunction { return &Binary<T, T, T, F{}>; });
}
template <typename F>
OpFunction TernaryOp(ScalarType type) {
  return ForInteger(type, []<typename T>(T) -> OpFunction { return &Ternary<T, T, T, T, F{}>; });
}
template <typename F>
OpFunction UnaryOp(ScalarType type) {
  return ForInteger(type, []<typename T>(T) -> OpFunction { return &Unary<T, T, F{}>; });
}
template <typename F>
OpFunction PairOp(std::string_view type) {
  if (type == "u16x2") return &Binary<uint32_t, uint32_t, uint32_t, Pairwise<uint16_t, F>{}>;
  if (type == "s16x2") return &Binary<uint32_t, uint32_t, uint32_t, Pairwise<int16_t, F>{}>;
  return nullptr;
}

std::string_view LastModifier(Lowering& l) { return l.Modifier(l.instruction().modifiers.size() - 1); }

bool DecodeAddSub(Lowering& l, bool subtract) {
  ScalarType type = l.Type();
  if (type == ScalarType::kNone)
    return EmitBinary(l, subtract ? PairOp<Sub>(LastModifier(l)) : PairOp<Add>(LastModifier(l)), ScalarType::kB32);
  if (l.Has("cc")) {
    VirtualOperand a = l.Use(1, type);
    VirtualOperand b = l.Use(2, type);
    if (TypeBytes(type) < 4) return false;
    EmitCarry(l, subtract, false, true, TypeBytes(type), l.Define(0, type), a, b);
    return true;
  }
  if (l.Has("sat")) {
    if (type != ScalarType::kS32) return false;
    return EmitBinary(l,
                      subtract ? &Binary<int32_t, int32_t, int32_t, Saturated<true>{}>
                               : &Binary<int32_t, int32_t, int32_t, Saturated<false>{}>,
                      type);
  }
  return EmitBinary(l, subtract ? BinaryOp<Sub>(Unsigned(type)) : BinaryOp<Add>(Unsigned(type)), type);
}
bool DecodeAdd(Lowering& l) { return DecodeAddSub(l, false); }
bool DecodeSub(Lowering& l) { return DecodeAddSub(l, true); }

template <bool kSubtract>
bool DecodeWithCarry(Lowering& l) {  // addc, subc
  ScalarType type = l.Type();
  if (TypeBytes(type) < 4) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  EmitCarry(l, kSubtract, true, l.Has("cc"), TypeBytes(type), l.Define(0, type), a, b);
  return true;
}

ScalarType WideType(ScalarType type) {
  switch (type) {
    case ScalarType::kU16:
      return ScalarType::kU32;
    case ScalarType::kS16:
      return ScalarType::kS32;
    case ScalarType::kU32:
      return ScalarType::kU64;
    case ScalarType::kS32:
      return ScalarType::kS64;
    default:
      return ScalarType::kNone;
  }
}

bool DecodeMul(Lowering& l) {
  ScalarType type = l.Type();
  if (l.Has("wide")) {
    ScalarType wide = WideType(type);
    if (wide == ScalarType::kNone) return false;
    OpFunction op = ForNarrowInteger(
        type, []<typename T>(T) -> OpFunction { return &Binary<typename Widened<T>::Type, T, T, MulWide{}>; });
    VirtualOperand a = l.Use(1, type);
    VirtualOperand b = l.Use(2, type);
    l.Emit(op, l.Define(0, wide), a, b);
    return true;
  }
  if (l.Has("hi")) return EmitBinary(l, BinaryOp<MulHi>(type), type);
  return EmitBinary(l, BinaryOp<MulLo>(Unsigned(type)), type);
}

bool DecodeMad(Lowering& l) {
  bool with_carry = l.instruction().opcode == "madc";
  ScalarType type = l.Type();
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  if (l.Has("wide")) {
    ScalarType wide = WideType(type);
    if (wide == ScalarType::kNone) return false;
    VirtualOperand c = l.Use(3, wide);
    OpFunction op = ForNarrowInteger(type, []<typename T>(T) -> OpFunction {
      using W = typename Widened<T>::Type;
      return &Ternary<W, T, T, W, MadWide{}>;
    });
    l.Emit(op, l.Define(0, wide), a, b, c);
    return true;
  }
  bool is_high = l.Has("hi");
  VirtualOperand c = l.Use(3, type);
  if (with_carry || l.Has("cc")) {
    if (TypeBytes(type) < 4) return false;
    VirtualOperand product = l.Temporary(TypeBytes(type));
    l.Emit(is_high ? BinaryOp<MulHi>(type) : BinaryOp<MulLo>(Unsigned(type)), product, a, b);
    EmitCarry(l, false, with_carry, l.Has("cc"), TypeBytes(type), l.Define(0, type), product, c);
    return true;
  }
  OpFunction op = is_high ? TernaryOp<MadHi>(type) : TernaryOp<MadLo>(Unsigned(type));
  if (l.Has("sat"))
    op = is_high && type == ScalarType::kS32 ? &Ternary<int32_t, int32_t, int32_t, int32_t, MadHiSaturated{}> : nullptr;
  if (op == nullptr) return false;
  l.Emit(op, l.Define(0, type), a, b, c);
  return true;
}

template <typename F>
bool DecodePlainBinary(Lowering& l) {
  return EmitBinary(l, BinaryOp<F>(l.Type()), l.Type());
}

template <typename F>
bool DecodeMinMax(Lowering& l) {
  ScalarType type = l.Type();
  bool is_pair = type == ScalarType::kNone;
  OpFunction op = is_pair ? PairOp<F>(LastModifier(l)) : BinaryOp<F>(type);
  if (is_pair) type = ScalarType::kB32;
  if (!EmitBinary(l, op, type)) return false;
  if (!l.Has("relu")) return true;
  VirtualOperand d = l.instructions.back().i.d;
  if (is_pair) {
    l.Emit(&Unary<uint32_t, uint32_t, PairwiseRelu{}>, d, d);
  } else {
    l.Emit(UnaryOp<Relu>(type), d, d);
  }
  return true;
}

template <typename F>
bool DecodePlainUnary(Lowering& l) {
  ScalarType type = l.Type();
  OpFunction op = ForSignedInteger(type, []<typename T>(T) -> OpFunction { return &Unary<T, T, F{}>; });
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  l.Emit(op, l.Define(0, type), a);
  return true;
}

bool DecodeSad(Lowering& l) {
  ScalarType type = l.Type();
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  VirtualOperand c = l.Use(3, type);
  OpFunction op = TernaryOp<Sad>(type);
  if (op == nullptr) return false;
  l.Emit(op, l.Define(0, type), a, b, c);
  return true;
}

bool DecodeMul24(Lowering& l) {
  ScalarType type = l.Type();
  bool is_signed = type == ScalarType::kS32;
  return EmitBinary(l,
                    l.Has("hi") ? (is_signed ? &Binary<int32_t, int32_t, int32_t, Mul24Hi{}>
                                             : &Binary<uint32_t, uint32_t, uint32_t, Mul24Hi{}>)
                                : (is_signed ? &Binary<int32_t, int32_t, int32_t, Mul24{}>
                                             : &Binary<uint32_t, uint32_t, uint32_t, Mul24{}>),
                    type);
}

bool DecodeMad24(Lowering& l) {
  ScalarType type = l.Type();
  if (l.Has("sat")) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  VirtualOperand c = l.Use(3, type);
  bool is_signed = type == ScalarType::kS32;
  l.Emit(l.Has("hi") ? (is_signed ? &Ternary<int32_t, int32_t, int32_t, int32_t, Mad24Hi{}>
                                  : &Ternary<uint32_t, uint32_t, uint32_t, uint32_t, Mad24Hi{}>)
                     : (is_signed ? &Ternary<int32_t, int32_t, int32_t, int32_t, Mad24{}>
                                  : &Ternary<uint32_t, uint32_t, uint32_t, uint32_t, Mad24{}>),
         l.Define(0, type), a, b, c);
  return true;
}

template <int kKind>
OpFunction DotOp(bool signed_a, bool signed_b) {
  using U = uint32_t;
  if (signed_a)
    return signed_b ? &Ternary<U, U, U, U, DotProduct<true, true, kKind>{}>
                    : &Ternary<U, U, U, U, DotProduct<true, false, kKind>{}>;
  return signed_b ? &Ternary<U, U, U, U, DotProduct<false, true, kKind>{}>
                  : &Ternary<U, U, U, U, DotProduct<false, false, kKind>{}>;
}

bool DecodeDot(Lowering& l) {
  bool signed_a = IsSigned(l.Type(0));
  bool signed_b = IsSigned(l.Type(1));
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  VirtualOperand c = l.Use(3, ScalarType::kB32);
  OpFunction op = l.instruction().opcode == "dp4a" ? DotOp<4>(signed_a, signed_b)
                  : l.Has("hi")                    ? DotOp<3>(signed_a, signed_b)
                                                   : DotOp<2>(signed_a, signed_b);
  l.Emit(op, l.Define(0, ScalarType::kB32), a, b, c);
  return true;
}

// The opcodes that integers share with floating point: the type decides (floating.cc and half.cc do the others).
template <bool (*kInteger)(Lowering&), bool (*kFloat)(Lowering&)>
bool DecodeByType(Lowering& l) {
  ScalarType type = l.Type();
  if (!IsFloat(type)) return kInteger(l);
  if (type == ScalarType::kF32 || type == ScalarType::kF64) return kFloat(l);
  return DecodeHalf(l);
}

}  // namespace

void AddIntegerOpcodes(OpcodeTable& table) {
  table["add"] = {&DecodeByType<&DecodeAdd, &DecodeFloat>};
  table["sub"] = {&DecodeByType<&DecodeSub, &DecodeFloat>};
  table["mul"] = {&DecodeByType<&DecodeMul, &DecodeFloat>};
  table["mad"] = {&DecodeByType<&DecodeMad, &DecodeFloat>};
  table["div"] = {&DecodeByType<&DecodePlainBinary<Div>, &DecodeFloat>};
  table["min"] = {&DecodeByType<&DecodeMinMax<Min>, &DecodeFloat>};
  table["max"] = {&DecodeByType<&DecodeMinMax<Max>, &DecodeFloat>};
  table["abs"] = {&DecodeByType<&DecodePlainUnary<Abs>, &DecodeFloat>};
  table["neg"] = {&DecodeByType<&DecodePlainUnary<Neg>, &DecodeFloat>};
  table["rem"] = {&DecodePlainBinary<Rem>};
  table["addc"] = {&DecodeWithCarry<false>};
  table["subc"] = {&DecodeWithCarry<true>};
  table["madc"] = {&DecodeMad};
  table["sad"] = {&DecodeSad};
  table["mul24"] = {&DecodeMul24};
  table["mad24"] = {&DecodeMad24};
  table["dp4a"] = {&DecodeDot};
  table["dp2a"] = {&DecodeDot};
}

}  // namespace tally::sim_driver
