// f16 and bf16: formats, rounding into them, and steps that other families need.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>

#include "sim-driver/engine/float_mode.h"
#include "sim-driver/engine/lowering.h"

namespace tally::sim_driver {

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp };

// Rounds `x` once, exactly, to a format of `mantissa` explicit bits and exponents from `min_exponent` (of the smallest
// normal number) to `max_exponent`; returns its encoding. `saturates`: the largest finite number instead of infinity,
// also for infinities.
uint32_t RoundToFormat(double x, int mantissa, int min_exponent, int max_exponent, Rounding rounding, bool saturates);

struct F16 {
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kInfinity = 0x7c00;
  static float ToFloat(uint16_t x) { return _cvtsh_ss(x); }
  static uint16_t FromFloat(float x) { return x != x ? kNan : _cvtss_sh(x, 0); }
  static uint16_t FromDouble(double x, Rounding rounding = Rounding::kNearest, bool saturates = false) {
    return x != x ? kNan : static_cast<uint16_t>(RoundToFormat(x, 10, -14, 15, rounding, saturates));
  }
};
struct Bf16 {
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kInfinity = 0x7f80;
  static float ToFloat(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }
  static uint16_t FromFloat(float x) {
    if (x != x) return kNan;
    auto bits = std::bit_cast<uint32_t>(x);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  static uint16_t FromDouble(double x, Rounding rounding = Rounding::kNearest, bool saturates = false) {
    return x != x ? kNan : static_cast<uint16_t>(RoundToFormat(x, 7, -126, 127, rounding, saturates));
  }
};

OpFunction HalfToFloatOp(bool is_bf16);  // f32 lanes from 16-bit lanes
// The low (0) or high (1) half of each 32-bit lane, as 16-bit lanes; and back.
VirtualOperand EmitHalfPart(Lowering& l, VirtualOperand pair, uint32_t part);
void EmitHalfPack(Lowering& l, VirtualOperand d, VirtualOperand low, VirtualOperand high);

}  // namespace tally::sim_driver
