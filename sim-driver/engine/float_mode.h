// Rounding and flushing of one warp instruction, through the CPU's control register.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "sim-driver/engine/lowering.h"

namespace tally::sim_driver {

// Bits of MXCSR, which is what PTX asks for: .rz .rm .rp and .ftz (subnormal inputs and results become zero).
inline constexpr uint32_t kRoundDown = 0x2000;
inline constexpr uint32_t kRoundUp = 0x4000;
inline constexpr uint32_t kRoundZero = 0x6000;
inline constexpr uint32_t kRoundMask = 0x6000;
inline constexpr uint32_t kFlushSubnormals = 0x8040;

// Runs `body`, which must take its operands from memory and leave its results there: the barriers keep the compiler
// from moving arithmetic out.
template <typename Body>
inline void WithFloatMode(uint32_t mode, Body body) {
  uint32_t saved = 0;
  if (mode != 0) [[unlikely]] {
    saved = _mm_getcsr();
    _mm_setcsr((saved & ~kRoundMask) | mode);
    asm volatile("" ::: "memory");
  }
  body();
  if (mode != 0) [[unlikely]] {
    asm volatile("" ::: "memory");
    _mm_setcsr(saved);
  }
}

// From the modifiers of the instruction; .ftz means nothing to f64.
inline uint32_t FloatMode(const Lowering& l, ScalarType type) {
  uint32_t mode = 0;
  if (l.Has("rz")) mode = kRoundZero;
  if (l.Has("rm")) mode = kRoundDown;
  if (l.Has("rp")) mode = kRoundUp;
  if (l.Has("ftz") && type != ScalarType::kF64) mode |= kFlushSubnormals;
  return mode;
}

// f32 results that are NaN are this one; f64 keeps payloads, as the CPU does.
inline float Canonical(float x) { return x != x ? std::bit_cast<float>(0x7fffffffu) : x; }
inline double Canonical(double x) { return x; }

}  // namespace tally::sim_driver
