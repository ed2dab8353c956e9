// Arithmetic of f32 and f64. Exact where PTX says so (.rn .rz .rm .rp); the .approx functions are the exact value
// rounded to nearest, hence at least as accurate as documented for devices, but not always the same bits.
#include <cmath>

#include "sim-driver/engine/float_mode.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"

namespace tally::sim_driver {
namespace {

constexpr uint32_t kSaturate = 1;  // Instruction::y
constexpr uint32_t kPropagatesNan = 2;
constexpr uint32_t kXorSignAbs = 4;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return Canonical(a + b);
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return Canonical(a - b);
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return Canonical(a * b);
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    return Canonical(a / b);
  }
};
struct Fma {
  float operator()(float a, float b, float c) const { return Canonical(__builtin_fmaf(a, b, c)); }
  double operator()(double a, double b, double c) const { return __builtin_fma(a, b, c); }
};
struct Sqrt {
  float operator()(float a) const { return Canonical(__builtin_sqrtf(a)); }
  double operator()(double a) const { return __builtin_sqrt(a); }
};
struct Reciprocal {
  template <typename T>
  T operator()(T a) const {
    return Canonical(T{1} / a);
  }
};
struct ReciprocalSqrt {
  float operator()(float a) const { return Canonical(static_cast<float>(1.0 / __builtin_sqrt(double{a}))); }
  double operator()(double a) const { return 1.0 / __builtin_sqrt(a); }
};
// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 give the upper half of a double.
template <typename F>
struct UpperHalf {
  double operator()(double a) const {
    if (std::fpclassify(a) == FP_SUBNORMAL) a = std::copysign(0.0, a);
    double r = F()(a);
    if (std::fpclassify(r) == FP_SUBNORMAL) r = std::copysign(0.0, r);
    if (r != r) return std::bit_cast<double>(uint64_t{0x7fffffff00000000});
    return std::bit_cast<double>(std::bit_cast<uint64_t>(r) & 0xffffffff00000000);
  }
};
struct Sine {
  float operator()(float a) const { return Canonical(static_cast<float>(std::sin(double{a}))); }
};
struct Cosine {
  float operator()(float a) const { return Canonical(static_cast<float>(std::cos(double{a}))); }
};
struct Log2 {
  float operator()(float a) const { return Canonical(static_cast<float>(std::log2(double{a}))); }
};
struct Exp2 {
  float operator()(float a) const { return Canonical(static_cast<float>(std::exp2(double{a}))); }
};
struct Tanh {
  float operator()(float a) const { return Canonical(static_cast<float>(std::tanh(double{a}))); }
};
struct Abs {
  float operator()(float a) const { return std::bit_cast<float>(std::bit_cast<uint32_t>(a) & 0x7fffffffu); }
  double operator()(double a) const { return __builtin_fabs(a); }
};
struct Neg {
  float operator()(float a) const { return std::bit_cast<float>(std::bit_cast<uint32_t>(a) ^ 0x80000000u); }
  double operator()(double a) const { return -a; }
};
struct CopySign {  // the sign of a, the rest of b
  float operator()(float a, float b) const { return __builtin_copysignf(b, a); }
  double operator()(double a, double b) const { return __builtin_copysign(b, a); }
};
template <typename T>
T FlushedValue(T x) {  // .ftz of what does no arithmetic
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T{0}, x) : x;
}
template <bool kMax>
struct Extreme {
  template <typename T>
  static T Of(T a, T b, bool propagates_nan) {
    if (a != a || b != b) {
      if (propagates_nan || (a != a && b != b)) return Canonical(std::bit_cast<T>(a != a ? a : b));
      return a != a ? b : a;
    }
    if (a == b) return std::signbit(a) == kMax ? b : a;
    return (a < b) != kMax ? a : b;
  }
};
struct Saturate {
  float operator()(float a) const { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; }
  double operator()(double a) const { return a > 0 ? (a < 1 ? a : 1.0) : 0.0; }
};

// x = float mode, as for all below.
template <typename T, auto kFunction>
void OpFloat1(Warp& w, const Instruction& i) {
  WithFloatMode(i.x, [&] { Unary<T, T, kFunction>(w, i); });
}
template <typename T, auto kFunction>
void OpFloat2(Warp& w, const Instruction& i) {
  WithFloatMode(i.x, [&] { Binary<T, T, T, kFunction>(w, i); });
}
template <typename T, auto kFunction>
void OpFloat3(Warp& w, const Instruction& i) {
  WithFloatMode(i.x, [&] { Ternary<T, T, T, T, kFunction>(w, i); });
}
// The approximations: libm must not see our modes, so flushing is explicit.
template <auto kFunction>
void OpApproximate(Warp& w, const Instruction& i) {
  float* d = Target<float>(w, i.d);
  const float* a = Source<float>(w, i.a);
  bool flushes = i.x & kFlushSubnormals;
  ForLanes(w.mask, [=](uint32_t l) {
    float r = kFunction(flushes ? FlushedValue(a[l]) : a[l]);
    d[l] = flushes ? FlushedValue(r) : r;
  });
}
template <typename T, bool kMax>
void OpExtreme(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  const T* b = Source<T>(w, i.b);
  bool flushes = i.x & kFlushSubnormals;
  uint32_t flags = i.y;
  ForLanes(w.mask, [=](uint32_t l) {
    T x = flushes ? FlushedValue(a[l]) : a[l];
    T y = flushes ? FlushedValue(b[l]) : b[l];
    T sign = std::copysign(T{1}, x) * std::copysign(T{1}, y);
    if (flags & kXorSignAbs) x = std::fabs(x), y = std::fabs(y);
    T r = Extreme<kMax>::Of(x, y, flags & kPropagatesNan);
    d[l] = (flags & kXorSignAbs) ? std::copysign(r, sign) : r;
  });
}
// The same without modifiers, as selections that the compiler can vectorise.
template <typename T, bool kMax>
struct PlainExtreme {
  T operator()(T a, T b) const {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    auto x = std::bit_cast<Bits>(a);
    auto y = std::bit_cast<Bits>(b);
    T r = (kMax ? a > b : a < b) ? a : b;                     // b where they are unordered
    r = a == b ? std::bit_cast<T>(kMax ? x & y : x | y) : r;  // the same, or zeros of different sign
    return Canonical(b != b ? a : r);
  }
};

template <typename T>
void OpFlush(Warp& w, const Instruction& i) {
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = FlushedValue(a[l]); });
}

struct Choice {
  OpFunction f32 = nullptr;
  OpFunction f64 = nullptr;
  uint32_t operands = 2;
};
template <typename F>
constexpr Choice One() {
  return {&OpFloat1<float, F{}>, &OpFloat1<double, F{}>, 1};
}
template <typename F>
constexpr Choice Two() {
  return {&OpFloat2<float, F{}>, &OpFloat2<double, F{}>, 2};
}
template <typename F>
constexpr Choice Approximate() {
  return {&OpApproximate<F{}>, nullptr, 1};
}

Choice ChoiceFor(Lowering& l, std::string_view name) {
  bool is_approximate = l.Has("approx");
  if (name == "add") return Two<Add>();
  if (name == "sub") return Two<Sub>();
  if (name == "mul") return Two<Mul>();
  if (name == "div") return Two<Div>();
  if (name == "fma" || name == "mad") return {&OpFloat3<float, Fma{}>, &OpFloat3<double, Fma{}>, 3};
  if (name == "sqrt") return One<Sqrt>();
  if (name == "rcp" && is_approximate)
    return {&OpFloat1<float, Reciprocal{}>, &OpFloat1<double, UpperHalf<Reciprocal>{}>, 1};
  if (name == "rcp") return One<Reciprocal>();
  if (name == "rsqrt" && l.Has("ftz"))
    return {&OpApproximate<ReciprocalSqrt{}>, &OpFloat1<double, UpperHalf<ReciprocalSqrt>{}>, 1};
  if (name == "rsqrt") return {&OpApproximate<ReciprocalSqrt{}>, &OpFloat1<double, ReciprocalSqrt{}>, 1};
  if (name == "sin") return Approximate<Sine>();
  if (name == "cos") return Approximate<Cosine>();
  if (name == "lg2") return Approximate<Log2>();
  if (name == "ex2") return Approximate<Exp2>();
  if (name == "tanh") return Approximate<Tanh>();
  if (name == "abs") return One<Abs>();
  if (name == "neg") return One<Neg>();
  if (name == "copysign") return Two<CopySign>();
  if (name == "min") return {&OpExtreme<float, false>, &OpExtreme<double, false>, 2};
  if (name == "max") return {&OpExtreme<float, true>, &OpExtreme<double, true>, 2};
  return {};
}

}  // namespace

bool DecodeFloat(Lowering& l) {
  ScalarType type = l.Type();
  if (type != ScalarType::kF32 && type != ScalarType::kF64) return DecodeHalf(l);
  std::string_view name = l.instruction().opcode;
  bool is_double = type == ScalarType::kF64;
  for (std::string_view modifier : l.instruction().modifiers)
    if (modifier == "f32x2" || modifier == "f16" || modifier == "bf16")
      return false;  // packed, mixed precision: sm_100
  Choice choice = ChoiceFor(l, name);
  OpFunction op = is_double ? choice.f64 : choice.f32;
  bool is_extreme = name == "min" || name == "max";
  if (op == nullptr) return false;
  if (is_extreme && !l.Has("ftz") && !l.Has("NaN") && !l.Has("xorsign"))
    op = name == "min" ? (is_double ? &Binary<double, double, double, PlainExtreme<double, false>{}>
                                    : &Binary<float, float, float, PlainExtreme<float, false>{}>)
                       : (is_double ? &Binary<double, double, double, PlainExtreme<double, true>{}>
                                    : &Binary<float, float, float, PlainExtreme<float, true>{}>);
  if (is_extreme && l.num_operands() == 4) {  // three inputs: twice two
    choice.operands = 3;
  } else if (l.num_operands() != choice.operands + 1) {
    return l.Invalid("wrong number of operands");
  }
  VirtualOperand operands[3] = {};
  for (uint32_t k = 0; k < choice.operands; ++k) operands[k] = l.Use(k + 1, type);
  VirtualOperand d = l.Define(0, type);
  uint32_t mode = FloatMode(l, type);
  uint32_t flags = (l.Has("NaN") ? kPropagatesNan : 0) | (l.Has("xorsign") ? kXorSignAbs : 0);
  if (is_extreme && choice.operands == 3) {
    VirtualOperand first = l.Temporary(TypeBytes(type));
    Instruction& i = l.Emit(op, first, operands[0], operands[1]).i;
    i.x = mode;
    i.y = flags;
    operands[0] = first;
    operands[1] = operands[2];
    operands[2] = kNoOperand;
  }
  Instruction& i = l.Emit(op, d, operands[0], operands[1], operands[2]).i;
  i.x = mode;
  i.y = flags;
  if ((name == "abs" || name == "neg") && mode != 0) l.Emit(is_double ? &OpFlush<double> : &OpFlush<float>, d, d);
  if (l.Has("sat")) l.Emit(is_double ? &Unary<double, double, Saturate{}> : &Unary<float, float, Saturate{}>, d, d);
  return true;
}

void AddFloatOpcodes(OpcodeTable& table) {
  for (const char* name : {"fma", "sqrt", "rcp", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "copysign"})
    table[name] = {&DecodeFloat};
}

}  // namespace tally::sim_driver
