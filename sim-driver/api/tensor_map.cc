#include "sim-driver/api/tensor_map.h"

#include <bit>
#include <cstring>

#include "sim-driver/api/error.h"
#include "sim-driver/engine/tensor_map.h"

namespace tally::sim_driver {
namespace {

static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));

constexpr uint64_t kAlignment = 16;  // of addresses, strides and rows of boxes, in bytes
constexpr uint64_t kMostSize = uint64_t{1} << 32;
constexpr uint64_t kMostStride = uint64_t{1} << 40;

uint8_t BytesOf(CUtensorMapDataType type) {
  switch (static_cast<int>(type)) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      Fail(CUDA_ERROR_NOT_SUPPORTED);
  }
}

uint8_t SwizzledBytes(CUtensorMapSwizzle swizzle) {
  switch (static_cast<int>(swizzle)) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    case CU_TENSOR_MAP_SWIZZLE_128B:
      return 128;
    default:
      Fail(CUDA_ERROR_NOT_SUPPORTED);
  }
}

uint64_t CheckedAddress(const void* address) {
  const auto value = reinterpret_cast<uint64_t>(address);
  Require(value != 0 && value % kAlignment == 0, CUDA_ERROR_INVALID_VALUE);
  return value;
}

}  // namespace

CUtensorMap EncodeTiled(const TiledTensor& tensor) {
  TensorMap map;
  map.magic = TensorMap::kMagic;
  map.address = CheckedAddress(tensor.address);
  map.num_dimensions = static_cast<uint8_t>(tensor.sizes.size());
  Require(tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE, CUDA_ERROR_NOT_SUPPORTED);
  Require(tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CUDA_ERROR_NOT_SUPPORTED);
  map.element_bytes = BytesOf(tensor.type);
  map.swizzle_bytes = SwizzledBytes(tensor.swizzle);
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    Require(tensor.sizes[d] != 0 && tensor.sizes[d] <= kMostSize, CUDA_ERROR_INVALID_VALUE);
    Require(tensor.box[d] != 0 && tensor.box[d] <= 256, CUDA_ERROR_INVALID_VALUE);
    Require(tensor.steps[d] != 0 && tensor.steps[d] <= 8, CUDA_ERROR_INVALID_VALUE);
    map.last_index[d] = static_cast<uint32_t>(tensor.sizes[d] - 1);
    map.box[d] = static_cast<uint16_t>(tensor.box[d]);
    map.steps[d] = d == 0 ? 1 : static_cast<uint8_t>(tensor.steps[d]);  // the manual: ignored for the innermost
    if (d == 0) continue;
    const uint64_t stride = tensor.strides[d - 1];
    Require(stride % kAlignment == 0 && stride < kMostStride, CUDA_ERROR_INVALID_VALUE);
    map.strides_bytes[d - 1] = stride;
  }
  Require(map.RowBytes() % kAlignment == 0, CUDA_ERROR_INVALID_VALUE);
  if (map.swizzle_bytes != 0) {
    Require(map.RowBytes() <= map.swizzle_bytes, CUDA_ERROR_INVALID_VALUE);
    Require(map.RowBytes() == map.swizzle_bytes, CUDA_ERROR_NOT_SUPPORTED);
  }
  return std::bit_cast<CUtensorMap>(map);
}

void ReplaceAddress(CUtensorMap& map, void* address) {
  auto changed = std::bit_cast<TensorMap>(map);
  Require(changed.IsValid(), CUDA_ERROR_INVALID_VALUE);
  changed.address = CheckedAddress(address);
  map = std::bit_cast<CUtensorMap>(changed);
}

}  // namespace tally::sim_driver
