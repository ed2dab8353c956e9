// Arithmetic of f16, f16x2, bf16 and bf16x2.
#include "sim-driver/engine/half.h"

#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

uint32_t RoundToFormat(double x, int mantissa, int min_exponent, int max_exponent, Rounding rounding, bool saturates) {
  auto bits = std::bit_cast<uint64_t>(x);
  bool is_negative = bits >> 63;
  int exponent_bits = 0;
  for (int range = max_exponent - min_exponent + 3; range > 1; range >>= 1) ++exponent_bits;
  uint32_t sign = is_negative ? 1u << (mantissa + exponent_bits) : 0;
  uint32_t infinity = static_cast<uint32_t>(max_exponent - min_exponent + 2) << mantissa;
  int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) return sign | (saturates ? infinity - 1 : infinity);
  if (exponent == 0 && fraction == 0) return sign;
  if (exponent == 0) {
    exponent = 1;
  } else {
    fraction |= uint64_t{1} << 52;
  }
  exponent -= 1023;
  int quantum = std::max(exponent, min_exponent) - mantissa;  // exponent of the last kept bit
  int shift = std::min(quantum - (exponent - 52), 60);
  uint64_t kept = fraction >> shift;
  uint64_t rest = fraction & ((uint64_t{1} << shift) - 1);
  uint64_t half = uint64_t{1} << (shift - 1);
  bool up = false;
  switch (rounding) {
    case Rounding::kNearest:
      up = rest > half || (rest == half && (kept & 1));
      break;
    case Rounding::kZero:
      break;
    case Rounding::kDown:
      up = is_negative && rest != 0;
      break;
    case Rounding::kUp:
      up = !is_negative && rest != 0;
      break;
  }
  kept += up;
  uint64_t encoded = kept;  // a carry into the exponent is right in this encoding
  if (exponent >= min_exponent) encoded += static_cast<uint64_t>(exponent - min_exponent) << mantissa;
  if (encoded >= infinity) {
    bool to_infinity = rounding == Rounding::kNearest || (rounding == Rounding::kDown && is_negative) ||
                       (rounding == Rounding::kUp && !is_negative);
    encoded = saturates || !to_infinity ? infinity - 1 : infinity;
  }
  return sign | static_cast<uint32_t>(encoded);
}

namespace {

constexpr uint32_t kFlush = 1;
constexpr uint32_t kSaturate = 2;
constexpr uint32_t kRelu = 4;
constexpr uint32_t kPropagatesNan = 8;
constexpr uint32_t kXorSignAbs = 16;

template <typename F>
uint16_t Finish(uint16_t r, uint32_t flags) {
  if (flags == 0) return r;
  bool is_nan = (r & 0x7fff) > F::kInfinity;
  if ((flags & kFlush) && (r & F::kInfinity) == 0) r &= 0x8000;
  if (flags & kSaturate) {
    float x = F::ToFloat(r);
    r = is_nan || x < 0 || r == 0x8000 ? 0 : x > 1 ? F::FromFloat(1.0f) : r;
  }
  if ((flags & kRelu) && !is_nan && (r & 0x8000)) r = 0;
  return r;
}

template <typename F>
uint16_t Flushed(uint16_t x, uint32_t flags) {
  return (flags & kFlush) && (x & F::kInfinity) == 0 ? x & 0x8000 : x;
}

// The sum and product of two halves round once in f32 and once more to half without harm: f32 has more than twice the
// bits. A fused multiply-add does not: its double sum is rounded to odd, so that the last rounding sees all.
struct HalfAdd {
  template <typename F>
  static uint16_t Do(uint16_t a, uint16_t b) {
    return F::FromFloat(F::ToFloat(a) + F::ToFloat(b));
  }
};
struct HalfSub {
  template <typename F>
  static uint16_t Do(uint16_t a, uint16_t b) {
    return F::FromFloat(F::ToFloat(a) - F::ToFloat(b));
  }
};
struct HalfMul {
  template <typename F>
  static uint16_t Do(uint16_t a, uint16_t b) {
    return F::FromFloat(F::ToFloat(a) * F::ToFloat(b));
  }
};
double SumToOdd(double a, double b) {
  double sum = a + b;
  double rest = sum - a;
  double error = (a - (sum - rest)) + (b - rest);
  if (error == 0 || !(sum - sum == 0)) return sum;
  auto bits = std::bit_cast<uint64_t>(sum);
  if (bits & 1) return sum;
  // `sum` is even and not exact: move one step towards the exact value.
  bool towards_larger_magnitude = (error > 0) == (sum > 0);
  return std::bit_cast<double>(towards_larger_magnitude ? bits + 1 : bits - 1);
}
struct HalfFma {
  template <typename F>
  static uint16_t Do(uint16_t a, uint16_t b, uint16_t c) {
    double product = static_cast<double>(F::ToFloat(a)) * F::ToFloat(b);
    return F::FromDouble(SumToOdd(product, F::ToFloat(c)));
  }
};
template <bool kMax>
struct HalfExtreme {
  template <typename F>
  static uint16_t Do(uint16_t a, uint16_t b, uint32_t flags) {
    uint16_t sign = 0;
    if (flags & kXorSignAbs) {
      sign = (a ^ b) & 0x8000;
      a &= 0x7fff;
      b &= 0x7fff;
    }
    bool nan_a = (a & 0x7fff) > F::kInfinity;
    bool nan_b = (b & 0x7fff) > F::kInfinity;
    uint16_t r = 0;
    if (nan_a || nan_b) {
      r = (nan_a && nan_b) || (flags & kPropagatesNan) ? F::kNan : nan_a ? b : a;
      if (r == F::kNan) return r;
    } else {
      // As integers of sign and magnitude, which orders -0 before +0.
      auto key = [](uint16_t v) {
        return v & 0x8000 ? -static_cast<int32_t>(v & 0x7fff) - 1 : static_cast<int32_t>(v);
      };
      r = (key(a) < key(b)) != kMax ? a : b;
    }
    return r | sign;
  }
};
struct HalfNeg {
  template <typename F>
  static uint16_t Do(uint16_t a) {
    return (a & 0x7fff) > F::kInfinity ? F::kNan : a ^ 0x8000;
  }
};
struct HalfAbs {
  template <typename F>
  static uint16_t Do(uint16_t a) {
    return (a & 0x7fff) > F::kInfinity ? F::kNan : a & 0x7fff;
  }
};
struct HalfExp2 {
  template <typename F>
  static uint16_t Do(uint16_t a) {
    return F::FromDouble(std::exp2(static_cast<double>(F::ToFloat(a))));
  }
};
struct HalfTanh {
  template <typename F>
  static uint16_t Do(uint16_t a) {
    return F::FromDouble(std::tanh(static_cast<double>(F::ToFloat(a))));
  }
};

template <typename F, typename Op>
uint16_t Apply(uint16_t a, uint16_t b, uint16_t c, uint32_t flags) {
  a = Flushed<F>(a, flags);
  b = Flushed<F>(b, flags);
  c = Flushed<F>(c, flags);
  uint16_t r = 0;
  if constexpr (requires { Op::template Do<F>(a, b, flags); } && !std::is_same_v<Op, HalfFma>) {
    r = Op::template Do<F>(a, b, flags);
  } else if constexpr (requires { Op::template Do<F>(a, b, c); }) {
    r = Op::template Do<F>(a, b, c);
  } else if constexpr (requires { Op::template Do<F>(a, b); }) {
    r = Op::template Do<F>(a, b);
  } else {
    r = Op::template Do<F>(a);
  }
  return Finish<F>(r, flags);
}

// d = op(a, b, c) on 16-bit lanes or pairs in 32-bit lanes; x = flags. Missing operands repeat a.
template <typename F, typename Op, typename T>
void OpHalf(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  const T* b = Source<T>(w, i.b);
  const T* c = Source<T>(w, i.c);
  uint32_t flags = i.x;
  ForLanes(w.mask, [=](uint32_t l) {
    auto low =
        Apply<F, Op>(static_cast<uint16_t>(a[l]), static_cast<uint16_t>(b[l]), static_cast<uint16_t>(c[l]), flags);
    if constexpr (sizeof(T) == 4) {
      auto high = Apply<F, Op>(static_cast<uint16_t>(a[l] >> 16), static_cast<uint16_t>(b[l] >> 16),
                               static_cast<uint16_t>(c[l] >> 16), flags);
      d[l] = low | uint32_t{high} << 16;
    } else {
      d[l] = low;
    }
  });
}

template <typename Op>
OpFunction HalfOp(ScalarType type) {
  switch (type) {
    case ScalarType::kF16:
      return &OpHalf<F16, Op, uint16_t>;
    case ScalarType::kF16x2:
      return &OpHalf<F16, Op, uint32_t>;
    case ScalarType::kBf16:
      return &OpHalf<Bf16, Op, uint16_t>;
    case ScalarType::kBf16x2:
      return &OpHalf<Bf16, Op, uint32_t>;
    default:
      return nullptr;
  }
}

struct ToFloat16 {
  float operator()(uint16_t a) const { return F16::ToFloat(a); }
};
struct ToFloatB16 {
  float operator()(uint16_t a) const { return Bf16::ToFloat(a); }
};
template <uint32_t kPart>
struct TakeHalf {
  uint16_t operator()(uint32_t a) const { return static_cast<uint16_t>(a >> (16 * kPart)); }
};
struct JoinHalves {
  uint32_t operator()(uint16_t a, uint16_t b) const { return a | uint32_t{b} << 16; }
};

}  // namespace

OpFunction HalfToFloatOp(bool is_bf16) {
  return is_bf16 ? &Unary<float, uint16_t, ToFloatB16{}> : &Unary<float, uint16_t, ToFloat16{}>;
}

VirtualOperand EmitHalfPart(Lowering& l, VirtualOperand pair, uint32_t part) {
  VirtualOperand half = l.Temporary(2);
  l.Emit(part ? &Unary<uint16_t, uint32_t, TakeHalf<1>{}> : &Unary<uint16_t, uint32_t, TakeHalf<0>{}>, half, pair);
  return half;
}

void EmitHalfPack(Lowering& l, VirtualOperand d, VirtualOperand low, VirtualOperand high) {
  l.Emit(&Binary<uint32_t, uint16_t, uint16_t, JoinHalves{}>, d, low, high);
}

bool DecodeHalf(Lowering& l) {
  ScalarType type = l.Type();
  std::string_view name = l.instruction().opcode;
  OpFunction op = nullptr;
  size_t count = 2;
  if (name == "add") op = HalfOp<HalfAdd>(type);
  if (name == "sub") op = HalfOp<HalfSub>(type);
  if (name == "mul") op = HalfOp<HalfMul>(type);
  if (name == "min") op = HalfOp<HalfExtreme<false>>(type);
  if (name == "max") op = HalfOp<HalfExtreme<true>>(type);
  if (name == "fma" || name == "mad") op = HalfOp<HalfFma>(type), count = 3;
  if (name == "neg") op = HalfOp<HalfNeg>(type), count = 1;
  if (name == "abs") op = HalfOp<HalfAbs>(type), count = 1;
  if (name == "ex2") op = HalfOp<HalfExp2>(type), count = 1;
  if (name == "tanh") op = HalfOp<HalfTanh>(type), count = 1;
  if (op == nullptr || l.Has("oob") || l.num_operands() != count + 1) return false;
  VirtualOperand operands[3];
  for (size_t k = 0; k < 3; ++k) operands[k] = k < count ? l.Use(k + 1, type) : operands[0];
  uint32_t flags = (l.Has("ftz") ? kFlush : 0) | (l.Has("sat") ? kSaturate : 0) | (l.Has("relu") ? kRelu : 0) |
                   (l.Has("NaN") ? kPropagatesNan : 0) | (l.Has("xorsign") ? kXorSignAbs : 0);
  l.Emit(op, l.Define(0, type), operands[0], operands[1], operands[2]).i.x = flags;
  return true;
}

}  // namespace tally::sim_driver
