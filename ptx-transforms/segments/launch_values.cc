#include "ptx-transforms/segments/launch_values.h"

#include <algorithm>
#include <cstring>

namespace tally::ptx_transforms {
namespace {

Affine Exactly(WideInteger constant) {
  Affine value;
  value.constant = constant;
  return value;
}

// Formulas are not deep, but loops name other loops' values.
constexpr uint32_t kMaxEvaluationDepth = 500;
// Loops that go round more often than this are not counted.
constexpr WideInteger kMostRounds = WideInteger{1} << 62;

}  // namespace

LaunchValues::LaunchValues(const KernelSegments& segments, const SegmentLaunch& launch, const SegmentMemory& memory)
    : segments_(segments), launch_(launch), memory_(memory) {
  rounds_.resize(segments.loops.size());
  places_.assign(segments.formula.size(), 0);
  values_.resize(2);
}

VariableId LaunchValues::NewVariable(LaunchVariable variable) {
  variables_.push_back(variable);
  return static_cast<VariableId>(variables_.size()) - 1;
}

Affine LaunchValues::Between(WideInteger low, WideInteger high, WideInteger stride, Exactness exactness) {
  Affine value;
  value.constant = low;
  if (high <= low) return value;
  stride = std::max<WideInteger>(stride, 1);
  if ((high - low) / stride == 0) return value;
  const VariableId variable = NewVariable({.most = (high - low) / stride, .exactness = exactness});
  value.terms[0] = {variable, stride};
  value.num_terms = 1;
  return value;
}

Affine LaunchValues::Anything(uint32_t bits, bool is_signed) {
  bits = std::min<uint32_t>(std::max<uint32_t>(bits, 1), 64);
  const WideInteger low = is_signed ? -PowerOfTwo(bits - 1) : WideInteger{0};
  return Between(low, low + PowerOfTwo(bits) - 1, 1, Exactness::kUnknown);
}

// The register as a number, of which only the multiples are known on which it lies.
Affine LaunchValues::Wrapped(const Affine& value, uint32_t bits, bool is_signed) {
  if (bits > 64) return Anything(bits, is_signed);
  const WideInteger unit = GreatestDivisor(value.Stride(), PowerOfTwo(bits));
  const WideInteger low = is_signed ? -PowerOfTwo(bits - 1) : WideInteger{0};
  const WideInteger shift = value.constant - low;
  const WideInteger first = low + (shift - FloorDivide(shift, unit) * unit);
  return Between(first, low + PowerOfTwo(bits) - 1, unit, std::max(Exactness::kComputed, ExactnessOf(value)));
}

Affine LaunchValues::Number(NodeId id, bool is_signed) {
  const uint32_t bits = segments_.formula[id].bits;
  const Affine& value = Of(id);
  if (const auto ranged = Ranged(value, bits, is_signed)) return *ranged;
  const auto known = numbers_.find(id * uint64_t{2} + is_signed);
  if (known != numbers_.end()) return known->second;
  return numbers_[id * uint64_t{2} + is_signed] = Wrapped(value, bits, is_signed);
}

Affine LaunchValues::Reduced(Affine value, uint32_t bits) const {
  if (bits <= 64) value.ReduceTo(bits);
  return value;
}

std::optional<WideRange> LaunchValues::RangeOf(const Affine& value) const {
  WideRange range = {value.constant, value.constant};
  for (uint32_t k = 0; k < value.num_terms; ++k) {
    const LaunchVariable& variable = variables_[value.terms[k].variable];
    WideInteger product = 0;
    if (!variable.is_bounded || __builtin_mul_overflow(value.terms[k].coefficient, variable.most, &product))
      return std::nullopt;
    WideInteger& side = product < 0 ? range.low : range.high;
    if (__builtin_add_overflow(side, product, &side)) return std::nullopt;
  }
  constexpr WideInteger kMost = WideInteger{1} << 100;  // so that who adds or subtracts two of them need not ask
  if (range.low < -kMost || range.high > kMost) return std::nullopt;
  return range;
}

std::optional<Affine> LaunchValues::Ranged(const Affine& value, uint32_t bits, bool is_signed) const {
  const auto range = RangeOf(value);
  if (!range || bits > 64) return std::nullopt;
  const WideInteger least = is_signed ? -PowerOfTwo(bits - 1) : WideInteger{0};
  const WideInteger shift = FloorDivide(range->low - least, PowerOfTwo(bits)) * PowerOfTwo(bits);
  if (range->high - shift > least + PowerOfTwo(bits) - 1) return std::nullopt;
  Affine moved = value;
  moved.constant -= shift;
  return moved;
}

Exactness LaunchValues::ExactnessOf(const Affine& value) const {
  Exactness least = Exactness::kExact;
  for (uint32_t k = 0; k < value.num_terms; ++k) least = std::max(least, variables_[value.terms[k].variable].exactness);
  return least;
}

const Affine& LaunchValues::Of(NodeId id) {
  if (places_[id] > 1) return *values_[places_[id]];
  const FormulaNode& node = segments_.formula[id];
  Affine value;
  if (places_[id] == 1 || nesting_ > kMaxEvaluationDepth) {
    value = Anything(node.bits, false);
  } else {
    places_[id] = 1;
    ++nesting_;
    value = Compute(id);
    --nesting_;
  }
  // A value whose computation came back to itself is computed twice: either is right.
  values_.push_back(std::make_unique<Affine>(value));
  places_[id] = static_cast<uint32_t>(values_.size()) - 1;
  return *values_.back();
}

Affine LaunchValues::Compute(NodeId id) {
  const FormulaNode& node = segments_.formula[id];
  switch (node.op) {
    case FormulaOp::kAdd:
    case FormulaOp::kSubtract:
    case FormulaOp::kTruncate:
    case FormulaOp::kPack:
    case FormulaOp::kInduction:
      return Sum(id, node);
    case FormulaOp::kMultiply:
    case FormulaOp::kMultiplyHigh:
      return Product(id, node);
    case FormulaOp::kExtend:
      return Extended(id, node);
    case FormulaOp::kShiftLeft:
    case FormulaOp::kShiftRight:
      return Shifted(id, node);
    case FormulaOp::kAnd:
      return Masked(id, node);
    case FormulaOp::kOr:
    case FormulaOp::kXor:
      return Joined(id, node);
    case FormulaOp::kMinimum:
    case FormulaOp::kMaximum:
      return Extreme(id, node);
    case FormulaOp::kDivide:
    case FormulaOp::kRemainder:
      return Divided(id, node);
    case FormulaOp::kChoice:
    case FormulaOp::kSelect:
      return Chosen(id, node);
    default:
      return Leaf(id, node);
  }
}

Affine LaunchValues::Leaf(NodeId, const FormulaNode& node) {
  Affine value;
  switch (node.op) {
    case FormulaOp::kConstant:
      value.constant = node.value;
      return Reduced(value, node.bits);
    case FormulaOp::kParameter: {
      const uint32_t bytes = node.bits / 8;
      if (node.value > launch_.parameters.size() || launch_.parameters.size() - node.value < bytes) break;
      uint64_t bits = 0;
      std::memcpy(&bits, launch_.parameters.data() + node.value, bytes);
      value.constant = bits;
      return Reduced(value, node.bits);
    }
    case FormulaOp::kSpecial: {
      const auto index = static_cast<uint32_t>(node.value);
      const auto& sizes = index / 3 % 2 == 0 ? launch_.block : launch_.grid;
      const uint32_t size = sizes[index % 3];
      if (index >= 6) {
        value.constant = size;
        return value;
      }
      if (size <= 1) return value;
      std::optional<VariableId>& variable = thread_variables_[index];
      if (!variable) variable = NewVariable({.most = size - WideInteger{1}});
      value.terms[0] = {*variable, 1};
      value.num_terms = 1;
      return value;
    }
    case FormulaOp::kSymbol: {
      const MemorySpan symbol = memory_.SymbolOf(segments_.symbols[node.value].name);
      if (symbol.bytes == 0) break;
      value.constant = symbol.address;
      return value;
    }
    case FormulaOp::kOpaque:
      return Between(0, node.value, 1, Exactness::kUnknown);
    default:
      break;
  }
  return Anything(node.bits, false);
}

Affine LaunchValues::Sum(NodeId id, const FormulaNode& node) {
  const Formula& formula = segments_.formula;
  Affine value = Of(formula.Operand(id, 0));
  bool is_good = true;
  if (node.op == FormulaOp::kAdd || node.op == FormulaOp::kSubtract) {
    is_good = value.AddScaled(Of(formula.Operand(id, 1)), node.op == FormulaOp::kAdd ? 1 : -1);
  } else if (node.op == FormulaOp::kPack) {
    const auto low = Ranged(value, 32, false);
    value = low ? *low : Anything(32, false);
    is_good = value.AddScaled(Of(formula.Operand(id, 1)), PowerOfTwo(32));
  } else if (node.op == FormulaOp::kInduction) {
    const InductionVariable& induction = segments_.inductions[node.value];
    if (induction.step == kNoNode) return Anything(node.bits, false);
    const Affine step = Reduced(Of(induction.step), node.bits);
    if (!step.is_constant()) return Anything(node.bits, false);
    is_good = step.constant == 0 || value.AddTerm(RoundsOf(induction.loop), step.constant);
  }
  return is_good ? Reduced(value, node.bits) : Anything(node.bits, false);
}

Affine LaunchValues::Product(NodeId id, const FormulaNode& node) {
  const Affine a = Of(segments_.formula.Operand(id, 0)), b = Of(segments_.formula.Operand(id, 1));
  const Exactness exactness = std::max({Exactness::kComputed, ExactnessOf(a), ExactnessOf(b)});
  if (node.op == FormulaOp::kMultiply && (a.is_constant() || b.is_constant())) {
    Affine product = a.is_constant() ? b : a;
    return product.Scale(a.is_constant() ? a.constant : b.constant) ? Reduced(product, node.bits)
                                                                    : Anything(node.bits, false);
  }
  const bool is_high = node.op == FormulaOp::kMultiplyHigh;
  auto as = std::optional(a), bs = std::optional(b);
  if (is_high) {
    as = Ranged(a, node.bits, node.is_signed);
    bs = Ranged(b, node.bits, node.is_signed);
  }
  const auto ar = as ? RangeOf(*as) : std::nullopt;
  const auto br = bs ? RangeOf(*bs) : std::nullopt;
  if (!ar || !br) return Anything(node.bits, is_high && node.is_signed);
  std::array<WideInteger, 4> corners{};
  size_t at = 0;
  for (const WideInteger x : {ar->low, ar->high})
    for (const WideInteger y : {br->low, br->high})
      if (__builtin_mul_overflow(x, y, &corners[at++])) return Anything(node.bits, is_high && node.is_signed);
  WideInteger low = *std::min_element(corners.begin(), corners.end());
  WideInteger high = *std::max_element(corners.begin(), corners.end());
  if (is_high)
    return Between(FloorDivide(low, PowerOfTwo(node.bits)), FloorDivide(high, PowerOfTwo(node.bits)), 1, exactness);
  // (c + s u) (d + t v): multiples of what divides c t, d s and s t, from c d on.
  const WideInteger s = as->Stride(), t = bs->Stride();
  WideInteger ct = 0, ds = 0, st = 0;
  const bool is_large = __builtin_mul_overflow(as->constant, t, &ct) || __builtin_mul_overflow(bs->constant, s, &ds) ||
                        __builtin_mul_overflow(s, t, &st);
  const WideInteger stride = is_large ? 1 : GreatestDivisor(GreatestDivisor(ct, ds), st);
  if (high - low >= PowerOfTwo(node.bits)) return Anything(node.bits, false);
  return Between(low, high, stride, exactness);
}

Affine LaunchValues::Extended(NodeId id, const FormulaNode& node) {
  return Number(segments_.formula.Operand(id, 0), node.is_signed);
}

Affine LaunchValues::Shifted(NodeId id, const FormulaNode& node) {
  const Affine by = Of(segments_.formula.Operand(id, 1));
  const Affine& value = Of(segments_.formula.Operand(id, 0));
  const auto amount = Ranged(by, 32, false);
  const bool is_known = amount && amount->is_constant();
  if (node.op == FormulaOp::kShiftLeft) {
    if (!is_known) return Anything(node.bits, false);
    if (amount->constant >= node.bits) return Affine();
    Affine shifted = value;
    const bool is_good = shifted.Scale(PowerOfTwo(static_cast<uint32_t>(amount->constant)));
    return is_good ? Reduced(shifted, node.bits) : Anything(node.bits, false);
  }
  const auto ranged = Ranged(value, node.bits, node.is_signed);
  const Affine number = ranged ? *ranged : Wrapped(value, node.bits, node.is_signed);
  const auto range = RangeOf(number);
  const Exactness exactness = std::max(Exactness::kComputed, ExactnessOf(number));
  if (!range) return Anything(node.bits, node.is_signed);
  if (!is_known)
    return Between(std::min<WideInteger>(range->low, 0), std::max<WideInteger>(range->high, 0), 1, exactness);
  const auto places = static_cast<uint32_t>(std::min<WideInteger>(amount->constant, node.bits));
  const WideInteger divisor = PowerOfTwo(places);
  if (number.Stride() % divisor == 0 && number.constant % divisor == 0) {
    Affine quotient = number;
    quotient.constant /= divisor;
    for (uint32_t k = 0; k < quotient.num_terms; ++k) quotient.terms[k].coefficient /= divisor;
    return quotient;
  }
  return Between(FloorDivide(range->low, divisor), FloorDivide(range->high, divisor), 1, exactness);
}

Affine LaunchValues::Masked(NodeId id, const FormulaNode& node) {
  const bool is_second_mask = Of(segments_.formula.Operand(id, 1)).is_constant();
  const Affine& a = Of(segments_.formula.Operand(id, is_second_mask ? 0 : 1));
  const Affine& b = Of(segments_.formula.Operand(id, is_second_mask ? 1 : 0));
  const auto mask = Ranged(b, node.bits, false);
  const auto number = Ranged(a, node.bits, false);
  const Exactness exactness = std::max({Exactness::kComputed, ExactnessOf(a), ExactnessOf(b)});
  if (mask && mask->is_constant()) {
    const WideInteger m = mask->constant;
    if (number && number->is_constant()) return Exactly(number->constant & m);
    if (m == 0) return Affine();
    const WideInteger all = PowerOfTwo(node.bits) - 1;
    WideInteger unit = 1;  // lowest bit of the mask
    while ((m & unit) == 0) unit *= 2;
    const bool is_low = (m & (m + 1)) == 0, is_high = (all - m) == unit - 1;
    if (is_low) {
      const auto range = number ? RangeOf(*number) : std::nullopt;
      if (range && range->high <= m) return *number;
      // What is a multiple of a power of two stays one.
      const WideInteger step = GreatestDivisor(GreatestDivisor(a.Stride(), a.constant), m + 1);
      return Between(0, m, step, exactness);
    }
    if (is_high && a.Stride() % unit == 0 && a.constant % unit == 0) return a;
    if (is_high && number) {
      const auto range = RangeOf(*number);
      return Between(FloorDivide(range->low, unit) * unit, FloorDivide(range->high, unit) * unit, unit, exactness);
    }
    return Between(0, m, unit, exactness);
  }
  const WideInteger all = PowerOfTwo(node.bits) - 1;
  const WideInteger most_a = number ? RangeOf(*number)->high : all, most_b = mask ? RangeOf(*mask)->high : all;
  return Between(0, std::min(most_a, most_b), 1, exactness);
}

Affine LaunchValues::Joined(NodeId id, const FormulaNode& node) {
  const Affine& a = Of(segments_.formula.Operand(id, 0));
  const Affine& b = Of(segments_.formula.Operand(id, 1));
  const auto as = Ranged(a, node.bits, false), bs = Ranged(b, node.bits, false);
  const WideInteger all = PowerOfTwo(node.bits) - 1;
  if (as && bs && as->is_constant() && bs->is_constant())
    return Exactly(node.op == FormulaOp::kOr ? as->constant | bs->constant : as->constant ^ bs->constant);
  if (node.op == FormulaOp::kXor && bs && bs->is_constant() && bs->constant == all) {  // not
    Affine value;
    value.constant = -1;
    if (value.AddScaled(a, -1)) return Reduced(value, node.bits);
  }
  // Bits that one has not and the other has alone add up.
  for (const auto& [high, low] : {std::pair(&a, &bs), std::pair(&b, &as)}) {
    if (!*low) continue;
    const auto range = RangeOf(**low);
    const WideInteger unit = GreatestDivisor(GreatestDivisor(high->Stride(), high->constant), PowerOfTwo(node.bits));
    if (!range || range->high >= unit) continue;
    Affine sum = *high;
    if (sum.AddScaled(**low, 1)) return Reduced(sum, node.bits);
  }
  if (!as || !bs) return Anything(node.bits, false);
  const WideRange ar = *RangeOf(*as), br = *RangeOf(*bs);
  WideInteger most = 1;
  while (most <= std::max(ar.high, br.high)) most *= 2;
  const WideInteger least = node.op == FormulaOp::kOr ? std::max(ar.low, br.low) : WideInteger{0};
  return Between(least, most - 1, 1, std::max({Exactness::kComputed, ExactnessOf(a), ExactnessOf(b)}));
}

Affine LaunchValues::Extreme(NodeId id, const FormulaNode& node) {
  const auto a = Ranged(Of(segments_.formula.Operand(id, 0)), node.bits, node.is_signed);
  const auto b = Ranged(Of(segments_.formula.Operand(id, 1)), node.bits, node.is_signed);
  const bool is_least = node.op == FormulaOp::kMinimum;
  WideRange type = {node.is_signed ? -PowerOfTwo(node.bits - 1) : WideInteger{0}, 0};
  type.high = type.low + PowerOfTwo(node.bits) - 1;
  const WideRange ar = a ? *RangeOf(*a) : type, br = b ? *RangeOf(*b) : type;
  if (a && (is_least ? ar.high <= br.low : ar.low >= br.high)) return *a;
  if (b && (is_least ? br.high <= ar.low : br.low >= ar.high)) return *b;
  Exactness exactness = Exactness::kUnknown;
  if (a && b) exactness = std::max({Exactness::kComputed, ExactnessOf(*a), ExactnessOf(*b)});
  if (is_least) return Between(std::min(ar.low, br.low), std::min(ar.high, br.high), 1, exactness);
  return Between(std::max(ar.low, br.low), std::max(ar.high, br.high), 1, exactness);
}

Affine LaunchValues::Divided(NodeId id, const FormulaNode& node) {
  const auto a = Ranged(Of(segments_.formula.Operand(id, 0)), node.bits, node.is_signed);
  const auto b = Ranged(Of(segments_.formula.Operand(id, 1)), node.bits, node.is_signed);
  if (!b) return Anything(node.bits, node.is_signed);
  const WideRange by = *RangeOf(*b);
  if (by.low <= 0) return Anything(node.bits, node.is_signed);  // what division by zero gives, nobody says
  const bool is_quotient = node.op == FormulaOp::kDivide;
  if (!a) {
    if (is_quotient || node.is_signed) return Anything(node.bits, node.is_signed);
    return Between(0, by.high - 1, 1, Exactness::kUnknown);
  }
  const WideRange of = *RangeOf(*a);
  const Exactness exactness = std::max({Exactness::kComputed, ExactnessOf(*a), ExactnessOf(*b)});
  const bool is_whole = by.low == by.high && a->Stride() % by.low == 0 && (of.low >= 0 || a->constant % by.low == 0);
  if (is_whole) {  // each of its multiples divides alike
    Affine exact;
    exact.constant =
        is_quotient ? FloorDivide(a->constant, by.low) : a->constant - FloorDivide(a->constant, by.low) * by.low;
    if (is_quotient)
      for (uint32_t k = 0; k < a->num_terms; ++k)
        exact.terms[exact.num_terms++] = {a->terms[k].variable, a->terms[k].coefficient / by.low};
    return exact;
  }
  if (is_quotient) {  // towards zero, so that the widest quotients are those by the smallest divisor
    const WideInteger low = of.low < 0 ? of.low / by.low : of.low / by.high;
    const WideInteger high = of.high < 0 ? of.high / by.high : of.high / by.low;
    return Between(low, high, 1, exactness);
  }
  if (of.low >= 0 && of.high < by.low) return *a;
  const WideInteger least = of.low < 0 ? std::max(of.low, 1 - by.high) : WideInteger{0};
  return Between(least, std::max<WideInteger>(std::min(of.high, by.high - 1), 0), 1, exactness);
}

Affine LaunchValues::Chosen(NodeId id, const FormulaNode& node) {
  const uint32_t first = node.op == FormulaOp::kSelect ? 1 : 0;
  const Affine& one = Of(segments_.formula.Operand(id, first));
  WideRange all;
  WideInteger stride = 0;
  Exactness exactness = Exactness::kComputed;
  for (uint32_t k = first; k < node.num_operands; ++k) {
    const Affine& value = Of(segments_.formula.Operand(id, k));
    const auto range = RangeOf(value);
    if (!range) return Anything(node.bits, false);
    all.low = k == first ? range->low : std::min(all.low, range->low);
    all.high = k == first ? range->high : std::max(all.high, range->high);
    stride = GreatestDivisor(GreatestDivisor(stride, value.Stride()), value.constant - one.constant);
    exactness = std::max(exactness, ExactnessOf(value));
  }
  if (all.high - all.low >= PowerOfTwo(std::min<uint32_t>(node.bits, 64))) return Anything(node.bits, false);
  // From `low` on: the values are apart from it by multiples of the stride, too, as each lies on the same ones.
  return Between(all.low, all.high, stride, exactness);
}

VariableId LaunchValues::RoundsOf(uint32_t loop) {
  if (rounds_[loop]) return *rounds_[loop];
  std::optional<WideInteger> most;
  for (const TripTest& test : segments_.loops[loop].tests) {
    const auto rounds = RoundsBy(test);
    if (rounds && (!most || *rounds < *most)) most = rounds;
  }
  LaunchVariable variable;
  variable.is_bounded = most.has_value();
  variable.most = most.value_or(0);
  if (!rounds_[loop]) rounds_[loop] = NewVariable(variable);
  return *rounds_[loop];
}

// How many rounds come after the first, at most. The machine's numbers are the ideal ones as long as none leaves the
// register's range before the test fails, so that is asked as well.
std::optional<WideInteger> LaunchValues::RoundsBy(const TripTest& test) {
  const uint32_t bits = segments_.formula[test.start].bits;
  Affine step = Of(test.step);
  step.ReduceTo(bits);
  if (!step.is_constant() || step.constant == 0) return std::nullopt;
  const Affine first = Of(test.start), last = Of(test.bound);
  const bool is_not_equal = test.goes_on == Comparison::kNotEqual;
  for (const bool is_signed : {true, false}) {
    if (!is_not_equal && is_signed != test.is_signed) continue;
    const auto start = Ranged(first, bits, is_signed), bound = Ranged(last, bits, is_signed);
    if (!start || !bound) continue;
    const bool is_up = step.constant > 0;
    const WideInteger by = is_up ? step.constant : -step.constant;
    Affine distance = is_up ? *bound : *start;
    if (!distance.AddScaled(is_up ? *start : *bound, -1)) continue;
    const auto range = RangeOf(distance);
    const auto limit = RangeOf(*bound);
    if (!range || !limit) continue;
    if (is_not_equal) {
      if (range->low < 0 || distance.Stride() % by != 0 || distance.constant % by != 0) continue;
      return range->high / by < kMostRounds ? std::optional(range->high / by) : std::nullopt;
    }
    const bool is_strict = test.goes_on == Comparison::kLess || test.goes_on == Comparison::kGreater;
    const bool goes_up = test.goes_on == Comparison::kLess || test.goes_on == Comparison::kLessOrEqual;
    if (test.goes_on == Comparison::kEqual || goes_up != is_up) continue;
    const WideInteger least = is_signed ? -PowerOfTwo(bits - 1) : WideInteger{0};
    const WideInteger slack = is_strict ? 0 : 1;
    // The first number for which the test fails.
    if (is_up && limit->high - 1 + slack + by > least + PowerOfTwo(bits) - 1) continue;
    if (!is_up && limit->low + 1 - slack - by < least) continue;
    const WideInteger length = range->high + slack;
    if (length <= 0) return WideInteger{0};
    const WideInteger rounds = (length + by - 1) / by;
    return rounds < kMostRounds ? std::optional(rounds) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tally::ptx_transforms
