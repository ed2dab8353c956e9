// CUDA arrays and mipmapped arrays. Texels lie row by row, tightly, in memory of the device's window: copies and
// kernels reach them like any other memory, and a use after cuArrayDestroy is noticed.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "sim-driver/api/context.h"
#include "sim-driver/api/handle_table.h"
#include "sim-driver/engine/texture.h"

namespace tally::sim_driver {

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  Image::Level layout;
  uint64_t context = 0;    // id
  uint64_t memory = 0;     // base of the allocation that it owns; 0: a mipmap's
  uint64_t num_bytes = 0;  // of its texels
  uint32_t texel_bytes = 0;
};
using ArrayPtr = std::shared_ptr<const Array>;

struct MipmappedArray {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  std::vector<CUarray> levels;
  uint64_t context = 0;
  uint64_t memory = 0;
  uint64_t num_bytes = 0;
};

// Fails with INVALID_VALUE for what no device takes, NOT_SUPPORTED for formats and kinds that this one lacks.
CUarray CreateArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description);
CUmipmappedArray CreateMipmappedArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description,
                                      unsigned int num_levels);
// Wait for the context's work first. Fail with INVALID_HANDLE; so does destroying a level of a mipmap.
void DestroyArray(Context& context, CUarray handle);
void DestroyMipmappedArray(Context& context, CUmipmappedArray handle);
// Fail with INVALID_HANDLE.
ArrayPtr FindArray(CUarray handle);
std::shared_ptr<const MipmappedArray> FindMipmappedArray(CUmipmappedArray handle);
// What a destroyed context had. Its memory goes with the rest of the context's.
void ForgetArraysOf(const Context& context);

// INVALID_VALUE for formats that are none, NOT_SUPPORTED for those that this device lacks.
TexelFormat TexelFormatOf(CUarray_format format);

}  // namespace tally::sim_driver
