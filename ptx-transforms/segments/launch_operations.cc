// LaunchValues: operations that are no sums. Exact where they can be, else bounds.
#include <algorithm>

#include "ptx-transforms/segments/launch_values.h"

namespace tally::ptx_transforms {
namespace {

Affine Exactly(WideInteger constant) {
  Affine value;
  value.constant = constant;
  return value;
}

}  // namespace

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

}  // namespace tally::ptx_transforms
