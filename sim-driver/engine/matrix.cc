#include "sim-driver/engine/matrix.h"

#include <cmath>

namespace tally::sim_driver {

void MatrixProduct::Multiply() {
  for (uint32_t r = 0; r < kFragmentRows; ++r) {
    for (uint32_t begin = 0; begin < columns; begin += 8) {
      alignas(32) float sum[8];
      std::memcpy(sum, &sums[r][begin], sizeof sum);
      for (uint32_t k = 0; k < depth; ++k) {
        for (uint32_t n = 0; n < 8; ++n) sum[n] = __builtin_fmaf(left[r][k], right[k][begin + n], sum[n]);
      }
      std::memcpy(&sums[r][begin], sum, sizeof sum);
    }
  }
}

void MatrixProduct::SetLeft(const Warp& w, const uint32_t* registers, MatrixElement element, float scale) {
  const uint32_t num_registers = depth / 4;
  for (uint32_t part = 0; part < num_registers; ++part) {
    const uint32_t* values = Source<uint32_t>(w, registers[part]);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      float* to = &left[RowOfLane(lane) + part % 2 * 8][ColumnOfLane(lane) + part / 2 * 8];
      to[0] = scale * ElementValue(element, static_cast<uint16_t>(values[lane]));
      to[1] = scale * ElementValue(element, static_cast<uint16_t>(values[lane] >> 16));
    }
  }
}

void MatrixProduct::LoadSums(const Warp& w, const uint32_t* registers, bool are_half) {
  for (uint32_t group = 0; group < columns / 8; ++group) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t half = 0; half < 2; ++half) {
        float* to = &sums[RowOfLane(lane) + 8 * half][8 * group + ColumnOfLane(lane)];
        if (are_half) {
          const uint32_t pair = Source<uint32_t>(w, registers[2 * group + half])[lane];
          to[0] = F16::ToFloat(static_cast<uint16_t>(pair));
          to[1] = F16::ToFloat(static_cast<uint16_t>(pair >> 16));
        } else {
          to[0] = Source<float>(w, registers[4 * group + 2 * half])[lane];
          to[1] = Source<float>(w, registers[4 * group + 2 * half + 1])[lane];
        }
      }
    }
  }
}

void MatrixProduct::StoreSums(const Warp& w, const uint32_t* registers, bool are_half) const {
  for (uint32_t group = 0; group < columns / 8; ++group) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t half = 0; half < 2; ++half) {
        const float* from = &sums[RowOfLane(lane) + 8 * half][8 * group + ColumnOfLane(lane)];
        if (are_half) {
          Target<uint32_t>(w, registers[2 * group + half])[lane] =
              F16::FromFloat(from[0]) | uint32_t{F16::FromFloat(from[1])} << 16;
        } else {
          Target<float>(w, registers[4 * group + 2 * half])[lane] = Canonical(from[0]);
          Target<float>(w, registers[4 * group + 2 * half + 1])[lane] = Canonical(from[1]);
        }
      }
    }
  }
}

}  // namespace tally::sim_driver
