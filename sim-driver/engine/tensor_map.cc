#include "sim-driver/engine/tensor_map.h"

namespace tally::sim_driver {

bool TensorMap::IsValid() const {
  if (magic != kMagic || num_dimensions == 0 || num_dimensions > kMostDimensions) return false;
  if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4 && element_bytes != 8) return false;
  for (uint32_t d = 0; d < num_dimensions; ++d) {
    if (box[d] == 0 || box[d] > 256 || steps[d] == 0 || steps[d] > 8) return false;
  }
  return steps[0] == 1 && RowBytes() % 16 == 0 && (swizzle_bytes == 0 || swizzle_bytes == RowBytes());
}

}  // namespace tally::sim_driver
