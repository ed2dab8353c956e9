#include "ptx-transforms/segments/affine.h"

namespace tally::ptx_transforms {

WideInteger FloorDivide(WideInteger a, WideInteger positive) {
  const WideInteger quotient = a / positive;
  return a % positive < 0 ? quotient - 1 : quotient;
}

WideInteger GreatestDivisor(WideInteger a, WideInteger b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) {
    const WideInteger rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

WideInteger Affine::CoefficientOf(VariableId variable) const {
  for (uint32_t k = 0; k < num_terms; ++k)
    if (terms[k].variable == variable) return terms[k].coefficient;
  return 0;
}

bool Affine::AddTerm(VariableId variable, WideInteger coefficient) {
  if (coefficient == 0) return true;
  for (uint32_t k = 0; k < num_terms; ++k) {
    if (terms[k].variable != variable) continue;
    if (__builtin_add_overflow(terms[k].coefficient, coefficient, &terms[k].coefficient)) return false;
    if (terms[k].coefficient == 0) terms[k] = terms[--num_terms];
    return true;
  }
  if (num_terms == kMaxTerms) return false;
  terms[num_terms++] = {variable, coefficient};
  return true;
}

bool Affine::AddScaled(const Affine& other, WideInteger factor) {
  WideInteger product = 0;
  if (__builtin_mul_overflow(other.constant, factor, &product) || __builtin_add_overflow(constant, product, &constant))
    return false;
  for (uint32_t k = 0; k < other.num_terms; ++k) {
    if (__builtin_mul_overflow(other.terms[k].coefficient, factor, &product)) return false;
    if (!AddTerm(other.terms[k].variable, product)) return false;
  }
  return true;
}

bool Affine::Scale(WideInteger factor) {
  Affine scaled;
  if (!scaled.AddScaled(*this, factor)) return false;
  *this = scaled;
  return true;
}

void Affine::ReduceTo(uint32_t bits) {
  const WideInteger modulus = PowerOfTwo(bits), half = PowerOfTwo(bits - 1);
  const auto reduce = [&](WideInteger& value) {
    if (value >= -half && value < half) return;
    value -= FloorDivide(value, modulus) * modulus;
    if (value >= half) value -= modulus;
  };
  reduce(constant);
  Affine kept;
  kept.constant = constant;
  for (uint32_t k = 0; k < num_terms; ++k) {
    reduce(terms[k].coefficient);
    if (terms[k].coefficient != 0) kept.terms[kept.num_terms++] = terms[k];
  }
  *this = kept;
}

WideInteger Affine::Stride() const {
  WideInteger stride = 0;
  for (uint32_t k = 0; k < num_terms; ++k) stride = GreatestDivisor(stride, terms[k].coefficient);
  return stride;
}

}  // namespace tally::ptx_transforms
