// Texture and surface objects: an Image for the engine, and what the program said to make it.
#pragma once

#include <cuda.h>

#include <memory>
#include <optional>

#include "sim-driver/api/context.h"
#include "sim-driver/engine/texture.h"

namespace tally::sim_driver {

// Of a texture of linear memory.
inline constexpr uint64_t kMaxLinearTexels = uint64_t{1} << 28;

struct ImageObject {
  Image image;
  uint64_t context = 0;  // id
  CUDA_RESOURCE_DESC resource{};
  std::optional<CUDA_TEXTURE_DESC> texture;  // a surface has none
  CUDA_RESOURCE_VIEW_DESC view{};
};

// Fail with INVALID_VALUE or INVALID_HANDLE for descriptions that make no sense, NOT_SUPPORTED for cube maps, views of
// another format and sRGB.
unsigned long long CreateTexture(Context& context, const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& texture,
                                 const CUDA_RESOURCE_VIEW_DESC* view);
unsigned long long CreateSurface(Context& context, const CUDA_RESOURCE_DESC& resource);
// Fail with INVALID_VALUE.
void DestroyTexture(unsigned long long object);
void DestroySurface(unsigned long long object);
std::shared_ptr<const ImageObject> FindTexture(unsigned long long object);
std::shared_ptr<const ImageObject> FindSurface(unsigned long long object);

// For kernels: either kind, or null.
std::shared_ptr<const Image> FindImageObject(unsigned long long object);
void ForgetImagesOf(const Context& context);

}  // namespace tally::sim_driver
