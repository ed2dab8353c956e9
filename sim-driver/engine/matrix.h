// Matrix fragments: which element of a small matrix is in which lane and register, and products of them. PTX ISA 9.7.15
// (mma), 9.7.16 (wgmma).
//
// Products of two elements are exact in fp32; sums are taken in fp32, in the order of k, one rounding each. The order
// of a GPU is not documented, so its last bits may differ.
#pragma once

#include <cstdint>

#include "sim-driver/engine/half.h"
#include "sim-driver/engine/lanes.h"

namespace tally::sim_driver {

enum class MatrixElement : uint8_t { kF16, kBf16, kTf32 };

inline float ElementValue(MatrixElement element, uint16_t bits) {
  return element == MatrixElement::kF16 ? F16::ToFloat(bits) : Bf16::ToFloat(bits);
}
// The matrix unit reads the upper 19 bits.
inline float Tf32Value(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }

// Of a fragment of sums, 8 columns wide: lane 4*g + t holds columns 2t and 2t+1 of rows g and g+8.
inline uint32_t RowOfLane(uint32_t lane) { return lane / 4; }
inline uint32_t ColumnOfLane(uint32_t lane) { return lane % 4 * 2; }

constexpr uint32_t kFragmentRows = 16;
constexpr uint32_t kMostColumns = 256;
constexpr uint32_t kMostDepth = 16;

// sums[r][n] += left[r][k] * right[k][n], of 16 rows.
struct MatrixProduct {
  uint32_t columns = 8;  // a multiple of 8
  uint32_t depth = 16;
  alignas(32) float left[kFragmentRows][kMostDepth];
  alignas(32) float right[kMostDepth][kMostColumns];
  alignas(32) float sums[kFragmentRows][kMostColumns];

  void Multiply();
  // Halves of 32-bit registers as rows g and g+8, k = 2t, 2t+1, and the same 8 further on: what mma and wgmma take.
  void SetLeft(const Warp& w, const uint32_t* registers, MatrixElement element, float scale = 1);
  // Sums from and to registers, of f32 (4 for 8 columns) or f16 pairs (2 for 8 columns).
  void LoadSums(const Warp& w, const uint32_t* registers, bool are_half);
  void StoreSums(const Warp& w, const uint32_t* registers, bool are_half) const;
};

}  // namespace tally::sim_driver
