// CUDA manual: Tensor Map Object Management. Of its ways to make one, only that of tiles.
#include "sim-driver/api/tensor_map.h"

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/engine/tensor_map.h"

using namespace tally::sim_driver;

namespace {

bool IsAligned(const CUtensorMap* map) { return reinterpret_cast<uintptr_t>(map) % 64 == 0; }

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                                     cuuint32_t tensorRank, void* globalAddress,
                                                     const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                                     const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                                     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill oobFill) {
  TALLY_ENTRY({
    RequireOut(tensorMap);
    Require(IsAligned(tensorMap), CUDA_ERROR_INVALID_VALUE);
    Require(tensorRank >= 1 && tensorRank <= TensorMap::kMostDimensions, CUDA_ERROR_INVALID_VALUE);
    Require(globalDim != nullptr && boxDim != nullptr && elementStrides != nullptr, CUDA_ERROR_INVALID_VALUE);
    Require(tensorRank == 1 || globalStrides != nullptr, CUDA_ERROR_INVALID_VALUE);
    *tensorMap = EncodeTiled({.type = tensorDataType,
                              .address = globalAddress,
                              .sizes = {globalDim, tensorRank},
                              .strides = {globalStrides, tensorRank - 1},
                              .box = {boxDim, tensorRank},
                              .steps = {elementStrides, tensorRank},
                              .interleave = interleave,
                              .swizzle = swizzle,
                              .fill = oobFill});
  });
}

TALLY_EXPORT CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  TALLY_ENTRY({
    RequireOut(tensorMap);
    Require(IsAligned(tensorMap), CUDA_ERROR_INVALID_VALUE);
    ReplaceAddress(*tensorMap, globalAddress);
  });
}
