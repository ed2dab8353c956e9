#include "sim-driver/api/texture_object.h"

#include <algorithm>

#include "sim-driver/api/array.h"
#include "sim-driver/api/error.h"

namespace tally::sim_driver {
namespace {

struct ImageTag;  // the table wants pointers for handles

HandleTable<ImageTag*, ImageObject>& Objects() {
  static auto& table = *new HandleTable<ImageTag*, ImageObject>("image-objects");
  return table;
}

std::shared_ptr<const ImageObject> Find(unsigned long long object) {
  return Objects().Find(reinterpret_cast<ImageTag*>(object));
}

unsigned long long Publish(ImageObject object) {
  return reinterpret_cast<unsigned long long>(Objects().Insert(std::make_shared<ImageObject>(std::move(object))));
}

void TakeShape(const CUDA_ARRAY3D_DESCRIPTOR& description, Image* image) {
  const bool is_layered = (description.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  image->num_layers = is_layered ? static_cast<uint32_t>(description.Depth) : 0;
  image->num_dimensions = description.Height == 0 ? 1 : is_layered || description.Depth == 0 ? 2 : 3;
  image->format = TexelFormatOf(description.Format);
  image->num_channels = description.NumChannels;
}

void TakeLinear(CUdeviceptr address, CUarray_format format, unsigned int num_channels, Image* image) {
  Require(num_channels == 1 || num_channels == 2 || num_channels == 4, CUDA_ERROR_INVALID_VALUE);
  Require(address != 0 && address % 512 == 0, CUDA_ERROR_INVALID_VALUE);
  image->format = TexelFormatOf(format);
  image->num_channels = num_channels;
}

Image ImageOf(const CUDA_RESOURCE_DESC& resource) {
  Require(resource.flags == 0, CUDA_ERROR_INVALID_VALUE);
  Image image;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const ArrayPtr array = FindArray(resource.res.array.hArray);
      TakeShape(array->description, &image);
      image.levels = {array->layout};
      return image;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto mipmap = FindMipmappedArray(resource.res.mipmap.hMipmappedArray);
      TakeShape(mipmap->description, &image);
      for (const CUarray level : mipmap->levels) image.levels.push_back(FindArray(level)->layout);
      return image;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      TakeLinear(linear.devPtr, linear.format, linear.numChannels, &image);
      image.is_linear_memory = true;
      const uint64_t texels = linear.sizeInBytes / image.texel_bytes();
      Require(texels != 0 && texels <= kMaxLinearTexels, CUDA_ERROR_INVALID_VALUE);
      Require(MemoryMap::Get().IsAccessible(linear.devPtr, linear.sizeInBytes, false), CUDA_ERROR_INVALID_VALUE);
      image.levels.push_back({.base = linear.devPtr, .width = static_cast<uint32_t>(texels)});
      return image;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource.res.pitch2D;
      TakeLinear(pitched.devPtr, pitched.format, pitched.numChannels, &image);
      image.num_dimensions = 2;
      Require(pitched.width != 0 && pitched.width <= 1 << 17 && pitched.height != 0 && pitched.height <= 65000 &&
                  pitched.pitchInBytes % 32 == 0 && pitched.pitchInBytes <= 1 << 22 &&
                  pitched.pitchInBytes >= pitched.width * image.texel_bytes(),
              CUDA_ERROR_INVALID_VALUE);
      const uint64_t bytes = (pitched.height - 1) * pitched.pitchInBytes + pitched.width * image.texel_bytes();
      Require(MemoryMap::Get().IsAccessible(pitched.devPtr, bytes, false), CUDA_ERROR_INVALID_VALUE);
      image.levels.push_back({.base = pitched.devPtr,
                              .row_bytes = pitched.pitchInBytes,
                              .width = static_cast<uint32_t>(pitched.width),
                              .height = static_cast<uint32_t>(pitched.height)});
      return image;
    }
  }
  Fail(CUDA_ERROR_INVALID_VALUE);
}

// Cuts the levels and layers that the view names. Its format must be that of the array.
void ApplyView(const CUDA_RESOURCE_VIEW_DESC& view, Image* image) {
  const Image::Level& whole = image->levels[0];
  Require(view.width == whole.width, CUDA_ERROR_INVALID_VALUE);
  Require(view.format == CU_RES_VIEW_FORMAT_NONE, CUDA_ERROR_NOT_SUPPORTED);
  Require(view.firstMipmapLevel <= view.lastMipmapLevel && view.lastMipmapLevel < image->levels.size() &&
              view.firstLayer <= view.lastLayer && view.lastLayer < std::max(image->num_layers, 1u),
          CUDA_ERROR_INVALID_VALUE);
  image->levels = {image->levels.begin() + view.firstMipmapLevel, image->levels.begin() + view.lastMipmapLevel + 1};
  if (image->num_layers == 0) return;
  image->num_layers = view.lastLayer - view.firstLayer + 1;
  for (Image::Level& level : image->levels) level.base += view.firstLayer * level.slice_bytes;
}

void ApplyTexture(const CUDA_TEXTURE_DESC& texture, Image* image) {
  constexpr unsigned kKnown =
      CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  Require((texture.flags & ~kKnown) == 0, CUDA_ERROR_NOT_SUPPORTED);
  for (int d = 0; d < 3; ++d) {
    Require(texture.addressMode[d] >= CU_TR_ADDRESS_MODE_WRAP && texture.addressMode[d] <= CU_TR_ADDRESS_MODE_BORDER,
            CUDA_ERROR_INVALID_VALUE);
    image->address_modes[d] = static_cast<AddressMode>(texture.addressMode[d]);
  }
  const auto is_filter = [](CUfilter_mode mode) {
    return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR;
  };
  Require(is_filter(texture.filterMode) && is_filter(texture.mipmapFilterMode), CUDA_ERROR_INVALID_VALUE);
  image->is_normalized = (texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  image->reads_integers = (texture.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  image->filters_linearly = texture.filterMode == CU_TR_FILTER_MODE_LINEAR && !image->is_linear_memory;
  image->filters_levels_linearly = texture.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR && image->levels.size() > 1;
  // Only what becomes a float can be filtered.
  const bool is_float = image->format == TexelFormat::kF16 || image->format == TexelFormat::kF32 ||
                        (!image->reads_integers && FormatBytes(image->format) < 4);
  Require(is_float || (!image->filters_linearly && !image->filters_levels_linearly), CUDA_ERROR_INVALID_VALUE);
  Require(image->levels.size() == 1 || image->is_normalized, CUDA_ERROR_INVALID_VALUE);
  image->level_bias = texture.mipmapLevelBias;
  image->min_level = texture.minMipmapLevelClamp;
  image->max_level = texture.maxMipmapLevelClamp;
  std::copy_n(texture.borderColor, 4, image->border.begin());
}

}  // namespace

unsigned long long CreateTexture(Context& context, const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& texture,
                                 const CUDA_RESOURCE_VIEW_DESC* view) {
  ImageObject object;
  object.image = ImageOf(resource);
  object.context = context.id();
  object.resource = resource;
  object.texture = texture;
  if (view != nullptr) {
    const bool is_array =
        resource.resType == CU_RESOURCE_TYPE_ARRAY || resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    Require(is_array, CUDA_ERROR_INVALID_VALUE);
    ApplyView(*view, &object.image);
    object.view = *view;
  }
  ApplyTexture(texture, &object.image);
  return Publish(std::move(object));
}

unsigned long long CreateSurface(Context& context, const CUDA_RESOURCE_DESC& resource) {
  Require(resource.resType == CU_RESOURCE_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE);
  Require((FindArray(resource.res.array.hArray)->description.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0,
          CUDA_ERROR_INVALID_VALUE);
  ImageObject object;
  object.image = ImageOf(resource);
  object.context = context.id();
  object.resource = resource;
  return Publish(std::move(object));
}

std::shared_ptr<const ImageObject> FindTexture(unsigned long long object) {
  std::shared_ptr<const ImageObject> found = Find(object);
  Require(found != nullptr && found->texture, CUDA_ERROR_INVALID_VALUE);
  return found;
}
std::shared_ptr<const ImageObject> FindSurface(unsigned long long object) {
  std::shared_ptr<const ImageObject> found = Find(object);
  Require(found != nullptr && !found->texture, CUDA_ERROR_INVALID_VALUE);
  return found;
}

void DestroyTexture(unsigned long long object) {
  FindTexture(object);
  Objects().Remove(reinterpret_cast<ImageTag*>(object));
}
void DestroySurface(unsigned long long object) {
  FindSurface(object);
  Objects().Remove(reinterpret_cast<ImageTag*>(object));
}

std::shared_ptr<const Image> FindImageObject(unsigned long long object) {
  const std::shared_ptr<const ImageObject> found = Find(object);
  return found != nullptr ? std::shared_ptr<const Image>(found, &found->image) : nullptr;
}

void ForgetImagesOf(const Context& context) {
  Objects().RemoveIf([&](const ImageObject& object) { return object.context == context.id(); });
}

}  // namespace tally::sim_driver
