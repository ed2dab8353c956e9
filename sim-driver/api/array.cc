#include "sim-driver/api/array.h"

#include <algorithm>
#include <bit>

#include "sim-driver/api/error.h"
#include "sim-driver/api/memory.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kMaxExtent = 1 << 17;

HandleTable<CUarray, Array>& Arrays() {
  static auto& table = *new HandleTable<CUarray, Array>("arrays");
  return table;
}
HandleTable<CUmipmappedArray, MipmappedArray>& MipmappedArrays() {
  static auto& table = *new HandleTable<CUmipmappedArray, MipmappedArray>("mipmapped-arrays");
  return table;
}

bool IsLayered(const CUDA_ARRAY3D_DESCRIPTOR& description) { return (description.Flags & CUDA_ARRAY3D_LAYERED) != 0; }

void CheckDescription(const CUDA_ARRAY3D_DESCRIPTOR& description) {
  Require(description.NumChannels == 1 || description.NumChannels == 2 || description.NumChannels == 4,
          CUDA_ERROR_INVALID_VALUE);
  TexelFormatOf(description.Format);
  Require(description.Width != 0 && description.Width <= kMaxExtent && description.Height <= kMaxExtent &&
              description.Depth <= kMaxExtent,
          CUDA_ERROR_INVALID_VALUE);
  // A depth needs a height, layers of one dimension do not.
  Require(IsLayered(description) ? description.Depth != 0 : description.Height != 0 || description.Depth == 0,
          CUDA_ERROR_INVALID_VALUE);
  constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER;
  Require((description.Flags & ~kKnown) == 0, CUDA_ERROR_NOT_SUPPORTED);
}

// An array of this description, of no address yet.
Array Shape(const Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description) {
  Array array;
  array.description = description;
  array.context = context.id();
  array.texel_bytes = FormatBytes(TexelFormatOf(description.Format)) * description.NumChannels;
  Image::Level& layout = array.layout;
  layout.width = static_cast<uint32_t>(description.Width);
  layout.height = static_cast<uint32_t>(std::max<size_t>(description.Height, 1));
  layout.depth = IsLayered(description) ? 1 : static_cast<uint32_t>(std::max<size_t>(description.Depth, 1));
  layout.row_bytes = uint64_t{layout.width} * array.texel_bytes;
  layout.slice_bytes = layout.row_bytes * layout.height;
  array.num_bytes = layout.slice_bytes * std::max<size_t>(description.Depth, 1);
  return array;
}

uint64_t Acquire(Context& context, uint64_t num_bytes) {
  MemoryRegion shape;
  shape.num_bytes = num_bytes;
  return AcquireMemory(context, shape, 0);
}

}  // namespace

TexelFormat TexelFormatOf(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      return TexelFormat::kU8;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      return TexelFormat::kU16;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      return TexelFormat::kU32;
    case CU_AD_FORMAT_SIGNED_INT8:
      return TexelFormat::kS8;
    case CU_AD_FORMAT_SIGNED_INT16:
      return TexelFormat::kS16;
    case CU_AD_FORMAT_SIGNED_INT32:
      return TexelFormat::kS32;
    case CU_AD_FORMAT_HALF:
      return TexelFormat::kF16;
    case CU_AD_FORMAT_FLOAT:
      return TexelFormat::kF32;
    default:
      // Block-compressed, planar, normalised and packed formats begin here.
      Fail(format >= 0x40 && format < 0x200 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
  }
}

CUarray CreateArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description) {
  CheckDescription(description);
  Array array = Shape(context, description);
  array.memory = array.layout.base = Acquire(context, array.num_bytes);
  return Arrays().Insert(std::make_shared<Array>(array));
}

CUmipmappedArray CreateMipmappedArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description,
                                      unsigned int num_levels) {
  CheckDescription(description);
  const uint64_t depth = IsLayered(description) ? 1 : description.Depth;
  const uint64_t largest = std::max({uint64_t{description.Width}, uint64_t{description.Height}, depth});
  // "Clamped to the range [1, 1 + floor(log2(max(width, height, depth)))]".
  const unsigned int count = std::clamp(num_levels, 1u, static_cast<unsigned int>(std::bit_width(largest)));
  auto mipmap = std::make_shared<MipmappedArray>();
  mipmap->description = description;
  mipmap->context = context.id();
  std::vector<Array> levels;
  for (unsigned int level = 0; level < count; ++level) {
    CUDA_ARRAY3D_DESCRIPTOR smaller = description;
    const auto shrink = [level](size_t extent) { return extent == 0 ? 0 : std::max<size_t>(extent >> level, 1); };
    smaller.Width = shrink(description.Width);
    smaller.Height = shrink(description.Height);
    if (!IsLayered(description)) smaller.Depth = shrink(description.Depth);
    levels.push_back(Shape(context, smaller));
    levels.back().layout.base = mipmap->num_bytes;  // an offset, for now
    mipmap->num_bytes += (levels.back().num_bytes + 511) / 512 * 512;
  }
  mipmap->memory = Acquire(context, mipmap->num_bytes);
  for (Array& level : levels) {
    level.layout.base += mipmap->memory;
    mipmap->levels.push_back(Arrays().Insert(std::make_shared<Array>(level)));
  }
  return MipmappedArrays().Insert(std::move(mipmap));
}

void DestroyArray(Context& context, CUarray handle) {
  Require(FindArray(handle)->memory != 0, CUDA_ERROR_INVALID_HANDLE);
  context.Synchronize();
  const auto array = Arrays().Remove(handle);
  Require(array != nullptr, CUDA_ERROR_INVALID_HANDLE);
  ReleaseMemory(array->memory);
}

void DestroyMipmappedArray(Context& context, CUmipmappedArray handle) {
  FindMipmappedArray(handle);
  context.Synchronize();
  const auto mipmap = MipmappedArrays().Remove(handle);
  Require(mipmap != nullptr, CUDA_ERROR_INVALID_HANDLE);
  for (const CUarray level : mipmap->levels) Arrays().Remove(level);
  ReleaseMemory(mipmap->memory);
}

ArrayPtr FindArray(CUarray handle) {
  ArrayPtr array = Arrays().Find(handle);
  Require(array != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return array;
}

std::shared_ptr<const MipmappedArray> FindMipmappedArray(CUmipmappedArray handle) {
  std::shared_ptr<const MipmappedArray> mipmap = MipmappedArrays().Find(handle);
  Require(mipmap != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return mipmap;
}

void ForgetArraysOf(const Context& context) {
  Arrays().RemoveIf([&](const Array& array) { return array.context == context.id(); });
  MipmappedArrays().RemoveIf([&](const MipmappedArray& mipmap) { return mipmap.context == context.id(); });
}

}  // namespace tally::sim_driver
