// Comparison and choice: setp, set, selp, slct, testp.
#include "sim-driver/engine/float_mode.h"
#include "sim-driver/engine/half.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/type_switch.h"

namespace tally::sim_driver {
namespace {

struct Eq {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Ne {  // of floats: ordered
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct Lt {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le {
  template <typename T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct IsNumber {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};

// The other comparisons are these with operands swapped or the result negated.
struct Comparison {
  uint32_t base = 0;  // 0 eq, 1 ne (ordered), 2 lt, 3 le, 4 number
  bool swaps = false;
  bool negates = false;
  bool is_unsigned = false;  // lo, ls, hi, hs
  bool is_known = true;
};

Comparison ComparisonNamed(std::string_view name, bool is_float) {
  if (name == "eq") return {0};
  if (name == "ne") return is_float ? Comparison{1} : Comparison{0, false, true};
  if (name == "lt") return {2};
  if (name == "le") return {3};
  if (name == "gt") return {2, true};
  if (name == "ge") return {3, true};
  if (name == "lo") return {2, false, false, true};
  if (name == "ls") return {3, false, false, true};
  if (name == "hi") return {2, true, false, true};
  if (name == "hs") return {3, true, false, true};
  if (name == "equ") return {1, false, true};
  if (name == "neu") return {0, false, true};
  if (name == "ltu") return {3, true, true};
  if (name == "leu") return {2, true, true};
  if (name == "gtu") return {3, false, true};
  if (name == "geu") return {2, false, true};
  if (name == "num") return {4};
  if (name == "nan") return {4, false, true};
  return {.is_known = false};
}

enum BoolOp : uint32_t { kNone, kAnd, kOr, kXor };
constexpr uint32_t kNegate = 4;

// d = cmp(a, b) op f, e = !cmp(a, b) op f; x = BoolOp | kNegate; y = float mode.
template <typename T, auto kCompare>
void OpCompare(Warp& w, const Instruction& i) {
  const T* a = Source<T>(w, i.a);
  const T* b = Source<T>(w, i.b);
  uint32_t result = 0;
  WithFloatMode(std::is_floating_point_v<T> ? i.y : 0, [&] {
    if (w.mask == kFullMask) {
      for (uint32_t l = 0; l < kLanes; ++l) result |= static_cast<uint32_t>(kCompare(a[l], b[l])) << l;
    } else {
      for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
        auto l = static_cast<uint32_t>(std::countr_zero(rest));
        result |= static_cast<uint32_t>(kCompare(a[l], b[l])) << l;
      }
    }
    asm volatile("" : "+r"(result));
  });
  if (i.x & kNegate) result = ~result;
  uint32_t other = ~result;
  switch (i.x & 3) {
    case kAnd: {
      uint32_t c = SourcePredicate(w, i.f);
      result &= c;
      other &= c;
      break;
    }
    case kOr: {
      uint32_t c = SourcePredicate(w, i.f);
      result |= c;
      other |= c;
      break;
    }
    case kXor: {
      uint32_t c = SourcePredicate(w, i.f);
      result ^= c;
      other ^= c;
      break;
    }
    default:
      break;
  }
  SetPredicate(w, i.d, result);
  SetPredicate(w, i.e, other);
}

OpFunction CompareOp(ScalarType type, uint32_t base) {
  auto choose = [&]<typename T>(T) -> OpFunction {
    switch (base) {
      case 0:
        if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
          return &OpCompare<std::make_unsigned_t<T>, Eq{}>;
        else
          return &OpCompare<T, Eq{}>;
      case 2:
        return &OpCompare<T, Lt{}>;
      case 3:
        return &OpCompare<T, Le{}>;
      default:
        break;
    }
    if constexpr (std::is_floating_point_v<T>) return base == 1 ? &OpCompare<T, Ne{}> : &OpCompare<T, IsNumber{}>;
    return nullptr;
  };
  if (type == ScalarType::kF32) return choose(float{});
  if (type == ScalarType::kF64) return choose(double{});
  return ForInteger(type, choose);
}

struct Compared {
  VirtualOperand p;
  VirtualOperand q;
};

// Emits the comparison of `a` and `b` into p and q.
bool EmitCompare(Lowering& l, ScalarType type, VirtualOperand a, VirtualOperand b, VirtualOperand bool_operand,
                 Compared to) {
  Comparison comparison = ComparisonNamed(l.Modifier(0), IsFloat(type));
  if (!comparison.is_known) return false;
  if (comparison.is_unsigned) type = Unsigned(type);
  OpFunction op = CompareOp(type, comparison.base);
  if (op == nullptr) return false;
  if (comparison.swaps) std::swap(a, b);
  Instruction& i = l.Emit(op, to.p, a, b).i;
  i.e = to.q;
  i.f = bool_operand;
  i.x = (l.Modifier(1) == "and"   ? kAnd
         : l.Modifier(1) == "or"  ? kOr
         : l.Modifier(1) == "xor" ? kXor
                                  : kNone) |
        (comparison.negates ? kNegate : 0);
  i.y = FloatMode(l, type);
  return true;
}

bool IsBoolOp(std::string_view name) { return name == "and" || name == "or" || name == "xor"; }

// Half types compare as f32, which holds them exactly.
VirtualOperand AsComparable(Lowering& l, VirtualOperand a, ScalarType* type) {
  if (!IsFloat(*type) || *type == ScalarType::kF32 || *type == ScalarType::kF64) return a;
  VirtualOperand wide = l.Temporary(4);
  l.Emit(HalfToFloatOp(*type == ScalarType::kBf16 || *type == ScalarType::kBf16x2), wide, a);
  return wide;
}

bool DecodePackedSetp(Lowering& l, ScalarType type) {
  const ptx::Operand& to = l.operand(0);
  if (to.kind != OperandKind::kPair || to.parts.size() != 2) return l.Invalid("setp of pairs writes p|q");
  bool has_bool = IsBoolOp(l.Modifier(1));
  VirtualOperand c = has_bool ? l.UsePredicate(size_t{3}) : kNoOperand;
  VirtualOperand a = l.Use(1, ScalarType::kB32);
  VirtualOperand b = l.Use(2, ScalarType::kB32);
  for (uint32_t part = 0; part < 2; ++part) {
    VirtualOperand x = EmitHalfPart(l, a, part);
    VirtualOperand y = EmitHalfPart(l, b, part);
    if (!EmitCompare(l, ScalarType::kF32, AsComparable(l, x, &type), AsComparable(l, y, &type), c,
                     {l.DefinePredicate(to.parts[part]), l.Temporary(kPredicateClass)}))
      return false;
  }
  return true;
}

bool DecodeSetp(Lowering& l) {
  ScalarType type = l.Type();
  if (type == ScalarType::kNone) return false;
  if (type == ScalarType::kF16x2 || type == ScalarType::kBf16x2) return DecodePackedSetp(l, type);
  const ptx::Operand& to = l.operand(0);
  bool is_pair = to.kind == OperandKind::kPair && to.parts.size() == 2;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  VirtualOperand c = IsBoolOp(l.Modifier(1)) ? l.UsePredicate(size_t{3}) : kNoOperand;
  VirtualOperand p = l.DefinePredicate(is_pair ? to.parts[0] : to);
  VirtualOperand q = is_pair ? l.DefinePredicate(to.parts[1]) : l.Temporary(kPredicateClass);
  a = AsComparable(l, a, &type);
  b = AsComparable(l, b, &type);
  return EmitCompare(l, IsFloat(type) && type != ScalarType::kF64 ? ScalarType::kF32 : type, a, b, c, {p, q});
}

// ---------------------------------------------------------------- selp, slct, set

template <typename T>
void OpSelect(Warp& w, const Instruction& i) {  // d = f ? a : b
  T* d = Target<T>(w, i.d);
  const T* a = Source<T>(w, i.a);
  const T* b = Source<T>(w, i.b);
  uint32_t p = SourcePredicate(w, i.f);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = (p >> l & 1) ? a[l] : b[l]; });
}
OpFunction SelectOp(uint32_t bytes) {
  return ForWidth(bytes, []<typename T>(T) -> OpFunction { return &OpSelect<T>; });
}

bool DecodeSelp(Lowering& l) {
  ScalarType type = l.Type();
  OpFunction op = SelectOp(TypeBytes(type));
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  VirtualOperand p = l.UsePredicate(size_t{3});
  l.Emit(op, l.Define(0, type), a, b).i.f = p;
  return true;
}

bool DecodeSlct(Lowering& l) {
  ScalarType type = l.Type(0);
  ScalarType selector = l.Type(1);
  OpFunction op = SelectOp(TypeBytes(type));
  if (op == nullptr || (selector != ScalarType::kS32 && selector != ScalarType::kF32)) return false;
  VirtualOperand a = l.Use(1, type);
  VirtualOperand b = l.Use(2, type);
  VirtualOperand c = l.Use(3, selector);
  VirtualOperand p = l.Temporary(kPredicateClass);
  Instruction& compare = l.Emit(CompareOp(selector, 3), p, l.Constant(4, 0), c).i;  // 0 <= c; false for NaN
  compare.e = l.Temporary(kPredicateClass);
  compare.y = FloatMode(l, selector);
  VirtualOperand d = l.Define(0, type);
  l.Emit(op, d, a, b).i.f = p;
  return true;
}

// What `set` writes for true, in its destination type.
uint64_t TrueValue(ScalarType type) {
  switch (type) {
    case ScalarType::kF32:
      return 0x3f800000;
    case ScalarType::kF16:
      return 0x3c00;
    case ScalarType::kBf16:
      return 0x3f80;
    default:
      return ~uint64_t{0};
  }
}

bool DecodeSet(Lowering& l) {
  ScalarType to = l.Type(0);
  ScalarType from = l.Type(1);
  if (from == ScalarType::kNone) return false;
  bool has_bool = IsBoolOp(l.Modifier(1));
  bool is_packed = from == ScalarType::kF16x2 || from == ScalarType::kBf16x2;
  VirtualOperand a = l.Use(1, from);
  VirtualOperand b = l.Use(2, from);
  VirtualOperand c = has_bool ? l.UsePredicate(size_t{3}) : kNoOperand;
  VirtualOperand d = l.Define(0, to);
  if (!is_packed) {
    VirtualOperand p = l.Temporary(kPredicateClass);
    ScalarType type = from;
    a = AsComparable(l, a, &type);
    b = AsComparable(l, b, &type);
    if (IsFloat(type) && type != ScalarType::kF64) type = ScalarType::kF32;
    if (!EmitCompare(l, type, a, b, c, {p, l.Temporary(kPredicateClass)})) return false;
    uint32_t bytes = TypeBytes(to);
    OpFunction op = SelectOp(bytes);
    if (op == nullptr) return false;
    l.Emit(op, d, l.Constant(bytes, TrueValue(to)), l.Constant(bytes, 0)).i.f = p;
    return true;
  }
  uint64_t one = to == ScalarType::kF16x2 ? 0x3c00 : to == ScalarType::kBf16x2 ? 0x3f80 : 0xffff;
  VirtualOperand halves[2];
  for (uint32_t part = 0; part < 2; ++part) {
    VirtualOperand p = l.Temporary(kPredicateClass);
    VirtualOperand x = AsComparable(l, EmitHalfPart(l, a, part), &from);
    VirtualOperand y = AsComparable(l, EmitHalfPart(l, b, part), &from);
    if (!EmitCompare(l, ScalarType::kF32, x, y, c, {p, l.Temporary(kPredicateClass)})) return false;
    halves[part] = l.Temporary(2);
    l.Emit(SelectOp(2), halves[part], l.Constant(2, one), l.Constant(2, 0)).i.f = p;
  }
  EmitHalfPack(l, d, halves[0], halves[1]);
  return true;
}

// ---------------------------------------------------------------- testp

template <typename T, uint32_t kKind>
void OpTest(Warp& w, const Instruction& i) {
  const T* a = Source<T>(w, i.a);
  uint32_t result = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    int c = std::fpclassify(a[l]);
    bool value = kKind == 0   ? c != FP_NAN && c != FP_INFINITE
                 : kKind == 1 ? c == FP_INFINITE
                 : kKind == 2 ? c != FP_NAN
                 : kKind == 3 ? c == FP_NAN
                 : kKind == 4 ? c == FP_NORMAL
                              : c == FP_SUBNORMAL;
    result |= static_cast<uint32_t>(value) << l;
  }
  SetPredicate(w, i.d, result);
}

bool DecodeTestp(Lowering& l) {
  ScalarType type = l.Type();
  auto choose = [&]<typename T>(T) -> OpFunction {
    std::string_view what = l.Modifier(0);
    if (what == "finite") return &OpTest<T, 0>;
    if (what == "infinite") return &OpTest<T, 1>;
    if (what == "number") return &OpTest<T, 2>;
    if (what == "notanumber") return &OpTest<T, 3>;
    if (what == "normal") return &OpTest<T, 4>;
    if (what == "subnormal") return &OpTest<T, 5>;
    return nullptr;
  };
  OpFunction op = type == ScalarType::kF64 ? choose(double{}) : type == ScalarType::kF32 ? choose(float{}) : nullptr;
  if (op == nullptr) return false;
  VirtualOperand a = l.Use(1, type);
  l.Emit(op, l.DefinePredicate(size_t{0}), a);
  return true;
}

}  // namespace

void AddComparisonOpcodes(OpcodeTable& table) {
  table["setp"] = {&DecodeSetp};
  table["set"] = {&DecodeSet};
  table["selp"] = {&DecodeSelp};
  table["slct"] = {&DecodeSlct};
  table["testp"] = {&DecodeTestp};
}

}  // namespace tally::sim_driver
