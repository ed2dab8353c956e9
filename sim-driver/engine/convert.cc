// cvt between integers, floats and halves; cvt.pack.
#include <cmath>
#include <limits>

#include "sim-driver/engine/float_mode.h"
#include "sim-driver/engine/half.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/type_switch.h"

namespace tally::sim_driver {
namespace {

enum class Integral : uint8_t { kNone, kNearest, kZero, kDown, kUp };  // .rni .rzi .rmi .rpi

// Everything on the way between a float and an integer or another float is a double, which holds f16, bf16 and f32
// exactly; 64-bit integers are treated apart.
double RoundIntegral(double x, Integral rounding) {
  switch (rounding) {
    case Integral::kNearest:
      return std::nearbyint(x);  // the control register is in its default, to nearest even
    case Integral::kZero:
      return std::trunc(x);
    case Integral::kDown:
      return std::floor(x);
    case Integral::kUp:
      return std::ceil(x);
    default:
      return x;
  }
}

// Saturating, as PTX defines for float to integer; NaN gives 0 (as cvt.rzi does on devices for 32 bits) or, for 64-bit
// results, 0x8000000000000000.
template <typename T>
T FloatToInteger(double x) {
  if (x != x) return sizeof(T) == 8 ? static_cast<T>(uint64_t{1} << 63) : T{0};
  constexpr double kEnd = std::is_signed_v<T> ? static_cast<double>(uint64_t{1} << (8 * sizeof(T) - 1))
                                              : 2.0 * static_cast<double>(uint64_t{1} << (8 * sizeof(T) - 1));
  if (x >= kEnd) return std::numeric_limits<T>::max();
  if (x < (std::is_signed_v<T> ? -kEnd : 0.0)) return std::numeric_limits<T>::min();
  return static_cast<T>(x);
}

struct Flush {
  float operator()(float x) const { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
};

// d = integer of float a; y = Integral, x = 1: .ftz.
template <typename T, typename Float>
void OpFloatToInteger(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  const Float* a = Source<Float>(w, i.a);
  auto rounding = static_cast<Integral>(i.y);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = FloatToInteger<T>(RoundIntegral(a[l], rounding)); });
}
// d = float of integer a; x = float mode. The conversion itself rounds as the mode says.
template <typename Float, typename T>
void OpIntegerToFloat(Warp& w, const Instruction& i) {
  Float* d = Target<Float>(w, i.d);
  const T* a = Source<T>(w, i.a);
  if constexpr (std::is_same_v<T, uint64_t>) {
    // GCC's sequence for uint64_t halves big numbers, keeping the lost bit, which is right in every mode.
    WithFloatMode(i.x, [&] {
      for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        uint64_t v = a[l];
        Float r = 0;
        if (v >> 63) {
          r = static_cast<Float>(static_cast<int64_t>(v >> 1 | (v & 1)));
          r += r;
        } else {
          r = static_cast<Float>(static_cast<int64_t>(v));
        }
        d[l] = r;
      }
    });
  } else {
    WithFloatMode(i.x, [&] { ForLanes(w.mask, [=](uint32_t l) { d[l] = static_cast<Float>(a[l]); }); });
  }
}
template <typename To, typename From>
struct Cast {
  To operator()(From a) const { return static_cast<To>(a); }
};
struct CanonicalFloat {
  float operator()(float a) const { return Canonical(a); }
};
void OpDoubleToFloat(Warp& w, const Instruction& i) {
  WithFloatMode(i.x, [&] { Unary<float, double, Cast<float, double>{}>(w, i); });
  Instruction canonical = i;
  canonical.a = i.d;
  Unary<float, float, CanonicalFloat{}>(w, canonical);
}
template <typename Float>
void OpRoundIntegral(Warp& w, const Instruction& i) {
  Float* d = Target<Float>(w, i.d);
  const Float* a = Source<Float>(w, i.a);
  auto rounding = static_cast<Integral>(i.y);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = Canonical(static_cast<Float>(RoundIntegral(a[l], rounding))); });
}
struct SaturateFloat {
  template <typename T>
  T operator()(T a) const {
    return a > 0 ? (a < 1 ? a : T{1}) : T{0};
  }
};

constexpr uint32_t kRelu = 4;
constexpr uint32_t kSatfinite = 8;
constexpr uint32_t kRoundsMask = 3;  // Rounding
// Double (or float) to half; x = Rounding | kRelu | kSatfinite.
template <typename F, typename Float>
uint16_t ToHalf(Float a, uint32_t flags) {
  if ((flags & kRelu) && a < 0) a = 0;
  if ((flags & kRelu) && a == 0) a = 0;
  if constexpr (std::is_same_v<Float, float>)
    if (flags == 0) return F::FromFloat(a);
  return F::FromDouble(a, static_cast<Rounding>(flags & kRoundsMask), flags & kSatfinite);
}
template <typename F, typename Float>
void OpToHalf(Warp& w, const Instruction& i) {
  auto* d = Target<uint16_t>(w, i.d);
  const Float* a = Source<Float>(w, i.a);
  uint32_t flags = i.x;
  ForLanes(w.mask, [=](uint32_t l) { d[l] = ToHalf<F>(a[l], flags); });
}
template <typename F>
void OpToHalfPair(Warp& w, const Instruction& i) {  // a is the high half
  auto* d = Target<uint32_t>(w, i.d);
  const float* a = Source<float>(w, i.a);
  const float* b = Source<float>(w, i.b);
  uint32_t flags = i.x;
  ForLanes(w.mask, [=](uint32_t l) { d[l] = ToHalf<F>(b[l], flags) | uint32_t{ToHalf<F>(a[l], flags)} << 16; });
}
template <typename F>
void OpIntegerToHalf(Warp& w, const Instruction& i) {  // a: int64_t; y: it is unsigned
  auto* d = Target<uint16_t>(w, i.d);
  const auto* a = Source<int64_t>(w, i.a);
  uint32_t flags = i.x;
  bool is_unsigned = i.y;
  ForLanes(w.mask, [=](uint32_t l) {
    // To 53 bits with a sticky last one, so that rounding to half sees whether anything was lost.
    bool negative = !is_unsigned && a[l] < 0;
    uint64_t magnitude = negative ? uint64_t{0} - static_cast<uint64_t>(a[l]) : static_cast<uint64_t>(a[l]);
    if (magnitude >> 53) magnitude = (magnitude & ~uint64_t{0xfff}) | ((magnitude & 0xfff) != 0 ? 0x1000 : 0);
    auto x = static_cast<double>(magnitude);
    d[l] = F::FromDouble(negative ? -x : x, static_cast<Rounding>(flags & kRoundsMask), flags & kSatfinite);
  });
}
// cvt.rna.tf32.f32 (and .rn, .rz): 10 bits of mantissa.
void OpToTf32(Warp& w, const Instruction& i) {
  auto* d = Target<uint32_t>(w, i.d);
  const auto* a = Source<uint32_t>(w, i.a);
  uint32_t kind = i.x;  // 0 to nearest, ties away; 1 to nearest even; 2 to zero
  ForLanes(w.mask, [=](uint32_t l) {
    uint32_t v = a[l];
    if ((v & 0x7fffffff) > 0x7f800000) {
      d[l] = 0x7fffffff;
    } else {
      uint32_t add = kind == 0 ? 0x1000 : kind == 1 ? 0xfff + (v >> 13 & 1) : 0;
      d[l] = ((v & 0x7f800000) == 0x7f800000 ? v : v + add) & ~0x1fffu;
    }
  });
}

template <typename T>
void OpClamp(Warp& w, const Instruction& i) {  // a (T: int64_t or uint64_t) to [f, imm]
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  const T* low = Source<T>(w, i.b);
  const T* high = Source<T>(w, i.c);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = a[l] < low[l] ? low[l] : a[l] > high[l] ? high[l] : a[l]; });
}

bool IsHalf(ScalarType type) { return type == ScalarType::kF16 || type == ScalarType::kBf16; }
uint32_t Bits(ScalarType type) { return 8 * MemoryBytes(type); }

Rounding RoundingOf(const Lowering& l) {
  return l.Has("rz")   ? Rounding::kZero
         : l.Has("rm") ? Rounding::kDown
         : l.Has("rp") ? Rounding::kUp
                       : Rounding::kNearest;
}
Integral IntegralOf(const Lowering& l) {
  return l.Has("rni")   ? Integral::kNearest
         : l.Has("rzi") ? Integral::kZero
         : l.Has("rmi") ? Integral::kDown
         : l.Has("rpi") ? Integral::kUp
                        : Integral::kNone;
}

// A source that may be wider than its type, as exactly its type (8-bit ones as 16).
VirtualOperand Narrowed(Lowering& l, size_t index, ScalarType type) {
  uint32_t width = 0;
  VirtualOperand a = l.UseWide(l.operand(index), type, &width);
  if (width == TypeBytes(type) && MemoryBytes(type) != 1) return a;
  if (width < TypeBytes(type) || width > 8 || width == kPredicateClass) {
    l.Invalid("the source register does not fit its type");
    return l.Constant(TypeBytes(type), 0);
  }
  VirtualOperand narrow = l.Temporary(TypeBytes(type));
  l.Emit(ExtendOp(TypeBytes(type), width, type), narrow, a);
  return narrow;
}

// Stores `value` (exactly `type` wide) into the destination, which may be wider: extended as its type says.
bool Deposit(Lowering& l, VirtualOperand value, uint32_t value_bytes, ScalarType type) {
  uint32_t width = 0;
  VirtualOperand d = l.DefineWide(l.operand(0), type, &width);
  if (width < TypeBytes(type) || width > 8 || width == kPredicateClass)
    return l.Invalid("the destination register does not fit its type");
  l.Emit(ExtendOp(width, value_bytes, type), d, value);
  return true;
}

bool IntegerToInteger(Lowering& l, ScalarType to, ScalarType from) {
  uint32_t source_width = 0;
  VirtualOperand a = l.UseWide(l.operand(1), from, &source_width);
  if (source_width < TypeBytes(from) || source_width > 8 || source_width == kPredicateClass)
    return l.Invalid("the source register does not fit its type");
  bool to_signed = IsSigned(to);
  bool from_signed = IsSigned(from);
  if (l.Has("sat")) {
    VirtualOperand wide = l.Temporary(8);
    l.Emit(ExtendOp(8, source_width, from), wide, a);
    uint64_t high = to_signed        ? (uint64_t{1} << (Bits(to) - 1)) - 1
                    : Bits(to) == 64 ? ~uint64_t{0}
                                     : (uint64_t{1} << Bits(to)) - 1;
    if (from_signed && high > uint64_t{INT64_MAX}) high = INT64_MAX;
    uint64_t low = to_signed && from_signed ? ~((uint64_t{1} << (Bits(to) - 1)) - 1) : 0;
    l.Emit(from_signed ? &OpClamp<int64_t> : &OpClamp<uint64_t>, wide, wide, l.Constant(8, low), l.Constant(8, high));
    return Deposit(l, wide, 8, to);
  }
  // One step: the narrower of both types decides what is kept, and how it extends.
  if (Bits(to) <= Bits(from)) return Deposit(l, a, source_width, to);
  uint32_t width = 0;
  VirtualOperand d = l.DefineWide(l.operand(0), to, &width);
  if (width < TypeBytes(to) || width > 8 || width == kPredicateClass)
    return l.Invalid("the destination register does not fit its type");
  if (width == TypeBytes(to) && MemoryBytes(to) != 1) {
    l.Emit(ExtendOp(width, source_width, from), d, a);
    return true;
  }
  VirtualOperand exact = l.Temporary(8);
  l.Emit(ExtendOp(8, source_width, from), exact, a);
  l.Emit(ExtendOp(width, 8, to), d, exact);
  return true;
}

// f16 and bf16 sources become f32.
VirtualOperand FloatSource(Lowering& l, ScalarType* from) {
  VirtualOperand a = l.Use(1, *from);
  if (IsHalf(*from)) {
    VirtualOperand wide = l.Temporary(4);
    l.Emit(HalfToFloatOp(*from == ScalarType::kBf16), wide, a);
    *from = ScalarType::kF32;
    return wide;
  }
  if (*from == ScalarType::kF32 && l.Has("ftz")) {
    VirtualOperand flushed = l.Temporary(4);
    l.Emit(&Unary<float, float, Flush{}>, flushed, a);
    return flushed;
  }
  return a;
}

bool FloatToIntegerConversion(Lowering& l, ScalarType to, ScalarType from) {
  VirtualOperand a = FloatSource(l, &from);
  bool is_double = from == ScalarType::kF64;
  auto op_for = [&]<typename T>(T) -> OpFunction {
    return is_double ? &OpFloatToInteger<T, double> : &OpFloatToInteger<T, float>;
  };
  Integral rounding = IntegralOf(l);
  if (rounding == Integral::kNone) return l.Invalid("float to integer needs .rni, .rzi, .rmi or .rpi");
  uint32_t bytes = TypeBytes(to);
  OpFunction op = MemoryBytes(to) == 1 ? nullptr : ForInteger(to, op_for);
  VirtualOperand value = l.Temporary(bytes);
  if (op == nullptr) {  // 8 bits: clamped through 16
    op = IsSigned(to) ? op_for(int16_t{}) : op_for(uint16_t{});
    l.Emit(op, value, a).i.y = static_cast<uint32_t>(rounding);
    VirtualOperand wide = l.Temporary(8);
    l.Emit(ExtendOp(8, 2, IsSigned(to) ? ScalarType::kS16 : ScalarType::kU16), wide, value);
    l.Emit(&OpClamp<int64_t>, wide, wide, l.Constant(8, IsSigned(to) ? ~uint64_t{127} : 0),
           l.Constant(8, IsSigned(to) ? 127 : 255));
    return Deposit(l, wide, 8, to);
  }
  l.Emit(op, value, a).i.y = static_cast<uint32_t>(rounding);
  return Deposit(l, value, bytes, to);
}

bool IntegerToFloatConversion(Lowering& l, ScalarType to, ScalarType from) {
  VirtualOperand a = Narrowed(l, 1, from);
  uint32_t bytes = TypeBytes(from);
  bool is_signed = IsSigned(from);
  if (IsHalf(to)) {
    VirtualOperand wide = l.Temporary(8);
    l.Emit(ExtendOp(8, bytes, MemoryBytes(from) == 1 ? (is_signed ? ScalarType::kS16 : ScalarType::kU16) : from), wide,
           a);
    Instruction& i =
        l.Emit(to == ScalarType::kBf16 ? &OpIntegerToHalf<Bf16> : &OpIntegerToHalf<F16>, l.Define(0, to), wide).i;
    i.x = static_cast<uint32_t>(RoundingOf(l)) | (l.Has("satfinite") ? kSatfinite : 0);
    i.y = !is_signed;
    return true;
  }
  bool is_double = to == ScalarType::kF64;
  auto op_for = [&]<typename T>(T) -> OpFunction {
    return is_double ? &OpIntegerToFloat<double, T> : &OpIntegerToFloat<float, T>;
  };
  ScalarType as = MemoryBytes(from) == 1 ? (is_signed ? ScalarType::kS16 : ScalarType::kU16) : from;
  OpFunction op = ForInteger(as, op_for);
  if (op == nullptr) return false;
  VirtualOperand d = l.Define(0, to);
  l.Emit(op, d, a).i.x = FloatMode(l, ScalarType::kF64);
  if (l.Has("sat"))
    l.Emit(is_double ? &Unary<double, double, SaturateFloat{}> : &Unary<float, float, SaturateFloat{}>, d, d);
  return true;
}

bool FloatToFloat(Lowering& l, ScalarType to, ScalarType from) {
  ScalarType original = from;
  Integral integral = IntegralOf(l);
  if (to == ScalarType::kTf32) {
    VirtualOperand a = l.Use(1, ScalarType::kF32);
    if (l.Has("relu") || l.Has("satfinite")) return false;
    l.Emit(&OpToTf32, l.Define(0, ScalarType::kB32), a).i.x = l.Has("rna") ? 0 : l.Has("rn") ? 1 : 2;
    return true;
  }
  VirtualOperand a = FloatSource(l, &from);
  if (integral != Integral::kNone) {
    VirtualOperand rounded = l.Temporary(TypeBytes(from));
    l.Emit(from == ScalarType::kF64 ? &OpRoundIntegral<double> : &OpRoundIntegral<float>, rounded, a).i.y =
        static_cast<uint32_t>(integral);
    a = rounded;
  }
  VirtualOperand d = l.Define(0, to);
  if (IsHalf(to)) {
    uint32_t flags =
        static_cast<uint32_t>(RoundingOf(l)) | (l.Has("relu") ? kRelu : 0) | (l.Has("satfinite") ? kSatfinite : 0);
    if (l.Has("sat")) {
      VirtualOperand clamped = l.Temporary(TypeBytes(from));
      l.Emit(from == ScalarType::kF64 ? &Unary<double, double, SaturateFloat{}> : &Unary<float, float, SaturateFloat{}>,
             clamped, a);
      a = clamped;
    }
    bool is_bf16 = to == ScalarType::kBf16;
    OpFunction op = from == ScalarType::kF64 ? (is_bf16 ? &OpToHalf<Bf16, double> : &OpToHalf<F16, double>)
                                             : (is_bf16 ? &OpToHalf<Bf16, float> : &OpToHalf<F16, float>);
    l.Emit(op, d, a).i.x = flags;
    return true;
  }
  if (to == from) {
    // f32.f32 and f64.f64 round to integers or just move; f32.f16 has become f32 already.
    l.Emit(MoveOp(TypeBytes(to)), d, a);
  } else if (to == ScalarType::kF64) {
    l.Emit(&Unary<double, float, Cast<double, float>{}>, d, a);
  } else {
    l.Emit(&OpDoubleToFloat, d, a).i.x = FloatMode(l, ScalarType::kF32);
  }
  if (l.Has("sat"))
    l.Emit(to == ScalarType::kF64 ? &Unary<double, double, SaturateFloat{}> : &Unary<float, float, SaturateFloat{}>, d,
           d);
  if (l.Has("relu")) return false;
  static_cast<void>(original);
  return true;
}

bool DecodePack(Lowering& l) {  // cvt.pack.sat.{u16,s16}.s32 d, a, b
  if (l.Type(1) != ScalarType::kS32 || l.num_operands() != 3) return l.Unsupported("cvt.pack to less than 16 bits");
  ScalarType to = l.Type(0);
  if (TypeBytes(to) != 2 || MemoryBytes(to) == 1) return false;
  VirtualOperand halves[2];
  bool is_signed = IsSigned(to);
  for (size_t k = 0; k < 2; ++k) {
    VirtualOperand wide = l.Temporary(8);
    l.Emit(ExtendOp(8, 4, ScalarType::kS32), wide, l.Use(k + 1, ScalarType::kS32));
    l.Emit(&OpClamp<int64_t>, wide, wide, l.Constant(8, is_signed ? ~uint64_t{0x7fff} : 0),
           l.Constant(8, is_signed ? 0x7fff : 0xffff));
    halves[k] = l.Temporary(2);
    l.Emit(ExtendOp(2, 8, ScalarType::kU16), halves[k], wide);
  }
  EmitHalfPack(l, l.Define(0, ScalarType::kB32), halves[1], halves[0]);
  return true;
}

bool DecodeConvert(Lowering& l) {
  if (l.Modifier(0) == "pack") return DecodePack(l);
  ScalarType to = l.Type(0);
  ScalarType from = l.Type(1);
  size_t types = 0;
  for (std::string_view modifier : l.instruction().modifiers) {
    bool is_type = ptx::ScalarTypeFromName(modifier) != ScalarType::kNone;
    types += is_type;
    // Eight-, six- and four-bit floats and the like.
    if (!is_type && (modifier[0] == 'e' || modifier[0] == 'u' || modifier.ends_with("x2") || modifier.ends_with("x4")))
      return false;
  }
  if (types != 2 || l.Has("rs") || l.Has("scaled")) return false;
  if (to == ScalarType::kF16x2 || to == ScalarType::kBf16x2) {
    if (from != ScalarType::kF32) return false;
    VirtualOperand a = l.Use(1, from);
    VirtualOperand b = l.Use(2, from);
    Instruction& i = l.Emit(to == ScalarType::kBf16x2 ? &OpToHalfPair<Bf16> : &OpToHalfPair<F16>,
                            l.Define(0, ScalarType::kB32), a, b)
                         .i;
    i.x = static_cast<uint32_t>(RoundingOf(l)) | (l.Has("relu") ? kRelu : 0) | (l.Has("satfinite") ? kSatfinite : 0);
    return true;
  }
  if (from == ScalarType::kF16x2 || from == ScalarType::kBf16x2 || to == ScalarType::kPred || from == ScalarType::kPred)
    return false;
  if (IsFloat(to)) return IsFloat(from) ? FloatToFloat(l, to, from) : IntegerToFloatConversion(l, to, from);
  return IsFloat(from) ? FloatToIntegerConversion(l, to, from) : IntegerToInteger(l, to, from);
}

}  // namespace

void AddConversionOpcodes(OpcodeTable& table) { table["cvt"] = {&DecodeConvert}; }

}  // namespace tally::sim_driver
