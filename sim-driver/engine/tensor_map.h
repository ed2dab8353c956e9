// Tensor maps: 128 bytes that say how a tensor lies in global memory, and what box of it one copy takes. The format is
// ours (CUDA keeps its own to itself); the driver's API writes it (api/tensor_map.h), the engine reads it.
#pragma once

#include <cstdint>

namespace tally::sim_driver {

struct TensorMap {
  static constexpr uint64_t kMagic = 0x70616d2d796c6c61;
  static constexpr uint32_t kMostDimensions = 5;

  uint64_t magic = 0;
  uint64_t address = 0;
  uint64_t strides_bytes[kMostDimensions - 1] =
      {};                                     // of the dimensions but the first, whose elements follow one another
  uint32_t last_index[kMostDimensions] = {};  // sizes minus one: 2^32 is allowed
  uint16_t box[kMostDimensions] = {};         // 1 to 256 elements
  uint8_t steps[kMostDimensions] = {};        // 1 to 8: every how manieth element of the box; of the first: 1
  uint8_t num_dimensions = 0;
  uint8_t element_bytes = 0;
  uint8_t swizzle_bytes = 0;  // 32, 64, 128: as many bytes of a row, whose 16-byte pieces trade places; 0: none
  uint8_t unused[42] = {};

  // Of a box in dimension d, in shared memory.
  uint32_t Count(uint32_t d) const { return (box[d] + steps[d] - 1u) / steps[d]; }
  uint32_t RowBytes() const { return uint32_t{box[0]} * element_bytes; }
  uint64_t BoxBytes() const {
    uint64_t bytes = RowBytes();
    for (uint32_t d = 1; d < num_dimensions; ++d) bytes *= Count(d);
    return bytes;
  }
  // Could the API have written it? Code on the device may have changed it.
  bool IsValid() const;
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace tally::sim_driver
