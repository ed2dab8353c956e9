// Tensor maps of the driver's API, in the engine's format (engine/tensor_map.h).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

namespace tally::sim_driver {

// The arguments of cuTensorMapEncodeTiled.
struct TiledTensor {
  CUtensorMapDataType type;
  void* address;
  std::span<const cuuint64_t> sizes;    // elements; as many as there are dimensions, the innermost first
  std::span<const cuuint64_t> strides;  // bytes, of all but the innermost
  std::span<const cuuint32_t> box;
  std::span<const cuuint32_t> steps;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapFloatOOBfill fill;
};

// Fails (error.h) with CUDA_ERROR_INVALID_VALUE for what CUDA's manual forbids, and with CUDA_ERROR_NOT_SUPPORTED for
// interleaved layouts, packed 4- and 6-bit elements, NaN outside of the tensor, and swizzled rows of a box that are
// shorter than what is swizzled.
CUtensorMap EncodeTiled(const TiledTensor& tensor);
// Of a map that EncodeTiled made.
void ReplaceAddress(CUtensorMap& map, void* address);

}  // namespace tally::sim_driver
