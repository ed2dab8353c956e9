// Affine: constant + sum of coefficient * variable, with variables that go from 0 to a known most. What a formula is
// once the launch is known.
//
// Stands for a register of `bits` bits: equal to it modulo 2^bits. So sums and products never overflow, and who needs
// the number itself (to widen, compare, divide) asks for a range first (LaunchValues::Ranged).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace tally::ptx_transforms {

// Wide enough for any sum of products of 64-bit numbers that is looked at; every operation on it is checked.
__extension__ using WideInteger = __int128;

using VariableId = uint32_t;

struct AffineTerm {
  VariableId variable = 0;
  WideInteger coefficient = 0;  // never 0 in an Affine
};

// Least and greatest, both included.
struct WideRange {
  WideInteger low = 0;
  WideInteger high = 0;
};

class Affine {
 public:
  static constexpr uint32_t kMaxTerms = 12;

  WideInteger constant = 0;
  std::array<AffineTerm, kMaxTerms> terms{};
  uint32_t num_terms = 0;

  bool is_constant() const { return num_terms == 0; }
  WideInteger CoefficientOf(VariableId variable) const;
  // False if there are too many terms, or a number too large: the value is useless then.
  [[nodiscard]] bool AddTerm(VariableId variable, WideInteger coefficient);
  [[nodiscard]] bool AddScaled(const Affine& other, WideInteger factor);
  [[nodiscard]] bool Scale(WideInteger factor);
  // Every coefficient and the constant into [-2^(bits-1), 2^(bits-1)): the same register.
  void ReduceTo(uint32_t bits);
  // Greatest number that all coefficients are multiples of; 0 for a constant.
  WideInteger Stride() const;
};

inline WideInteger PowerOfTwo(uint32_t exponent) { return WideInteger{1} << exponent; }
WideInteger FloorDivide(WideInteger a, WideInteger positive);
WideInteger GreatestDivisor(WideInteger a, WideInteger b);

}  // namespace tally::ptx_transforms
