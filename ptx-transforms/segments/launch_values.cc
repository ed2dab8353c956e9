#include "ptx-transforms/segments/launch_values.h"

#include <algorithm>
#include <cstring>

namespace tally::ptx_transforms {
namespace {

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
