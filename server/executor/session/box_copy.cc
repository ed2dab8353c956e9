#include "server/executor/session/box_copy.h"

#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

// No dimension of a real copy comes near; products of three stay far below what Wide holds.
constexpr uint64_t kMaxExtent = uint64_t{1} << 40;
__extension__ using Wide = unsigned __int128;

// Bytes from the base to the end of the last row touched; as wide as it takes.
Wide ExtentOf(const shm::BoxSide& side, const shm::CopyBox& box, uint64_t pitch, uint64_t height) {
  const Wide slice = Wide{pitch} * height;
  return (Wide{side.z} + box.depth - 1) * slice + (Wide{side.y} + box.height - 1) * pitch + side.x_bytes +
         box.width_bytes;
}

struct Side {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  uint64_t address = 0;  // or host pointer
  CUarray array = nullptr;
  uint64_t pitch = 0;
  uint64_t height = 0;
  bool is_host = false;
};

CUresult ReadSide(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, const shm::BoxSide& side,
                  const shm::CopyBox& box, bool is_source, std::span<const std::byte> inline_bytes, ArenaUse* arena,
                  Side* result) {
  const auto place = static_cast<shm::Place>(side.place);
  if (place == shm::Place::kArray) {
    result->type = CU_MEMORYTYPE_ARRAY;
    return names.Find(shm::HandleKind::kArray, side.base, &result->array);  // the driver knows its extents
  }
  if (side.x_bytes > kMaxExtent || side.y > kMaxExtent || side.z > kMaxExtent || side.pitch_bytes > kMaxExtent ||
      side.height > kMaxExtent) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  result->pitch = side.pitch_bytes != 0 ? side.pitch_bytes : side.x_bytes + box.width_bytes;
  result->height = side.height != 0 ? side.height : side.y + box.height;
  if (result->pitch < side.x_bytes + box.width_bytes || result->pitch < box.width_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (box.depth > 1 && result->height < box.height) return CUDA_ERROR_INVALID_VALUE;
  const Wide extent = ExtentOf(side, box, result->pitch, result->height);
  if (extent > UINT64_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
  const auto size = static_cast<uint64_t>(extent);
  switch (place) {
    case shm::Place::kAddress: {
      const std::optional<MemoryRange> range = served.session().memory.Find(side.base, size);
      if (!range) return CUDA_ERROR_INVALID_VALUE;
      result->is_host = range->kind == MemoryKind::kPinned;
      // On several devices the driver is left to see whose address it is.
      const bool is_one_device = served.session().core.devices->count() == 1;
      result->type = result->is_host ? CU_MEMORYTYPE_HOST
                     : is_one_device ? CU_MEMORYTYPE_DEVICE
                                     : CU_MEMORYTYPE_UNIFIED;
      result->address = side.base;
      return CUDA_SUCCESS;
    }
    case shm::Place::kArena: {
      if (side.base > ChannelRegion::kArenaBytes || size > ChannelRegion::kArenaBytes - side.base) {
        return served.Malformed("copy beyond the arena");
      }
      if (arena->used) return served.Malformed("copy from arena to arena");
      CUresult registered = CUDA_SUCCESS;
      std::byte* base = chunks.Arena(&registered);
      if (base == nullptr) return registered;
      *arena = {true, side.base, size};
      result->is_host = true;
      result->type = CU_MEMORYTYPE_HOST;
      result->address = reinterpret_cast<uint64_t>(base + side.base);
      return CUDA_SUCCESS;
    }
    case shm::Place::kInline:
      if (!is_source || size > inline_bytes.size()) return served.Malformed("copy beyond its inline bytes");
      result->is_host = true;
      result->type = CU_MEMORYTYPE_HOST;
      result->address = reinterpret_cast<uint64_t>(inline_bytes.data());
      return CUDA_SUCCESS;
    case shm::Place::kArray:
      break;
  }
  return served.Malformed("unknown place of a copy");
}

}  // namespace

bool IsPinned(ServedRequest& served, uint64_t address) {
  const std::optional<MemoryRange> range = served.session().memory.Find(address, 0);
  return range && range->kind == MemoryKind::kPinned;
}

CUresult ReadBoxCopy(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, const shm::CopyBox& box,
                     std::span<const std::byte> inline_bytes, BoxCopy* copy) {
  if (box.width_bytes == 0 || box.height == 0 || box.depth == 0) {
    copy->size_bytes = 0;
    return CUDA_SUCCESS;
  }
  if (box.width_bytes > kMaxExtent || box.height > kMaxExtent || box.depth > kMaxExtent) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Wide total = Wide{box.width_bytes} * box.height * box.depth;
  if (total > UINT64_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
  Side from;
  Side to;
  if (const CUresult r = ReadSide(served, names, chunks, box.source, box, true, inline_bytes, &copy->arena, &from);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (const CUresult r = ReadSide(served, names, chunks, box.destination, box, false, {}, &copy->arena, &to);
      r != CUDA_SUCCESS) {
    return r;
  }
  CUDA_MEMCPY3D& p = copy->parameters;
  p.srcXInBytes = box.source.x_bytes;
  p.srcY = box.source.y;
  p.srcZ = box.source.z;
  p.srcLOD = box.source.lod;
  p.srcMemoryType = from.type;
  p.srcHost = from.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<const void*>(from.address) : nullptr;
  p.srcDevice = from.type == CU_MEMORYTYPE_HOST ? 0 : from.address;
  p.srcArray = from.array;
  p.srcPitch = from.pitch;
  p.srcHeight = from.height;
  p.dstXInBytes = box.destination.x_bytes;
  p.dstY = box.destination.y;
  p.dstZ = box.destination.z;
  p.dstLOD = box.destination.lod;
  p.dstMemoryType = to.type;
  p.dstHost = to.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<void*>(to.address) : nullptr;
  p.dstDevice = to.type == CU_MEMORYTYPE_HOST ? 0 : to.address;
  p.dstArray = to.array;
  p.dstPitch = to.pitch;
  p.dstHeight = to.height;
  p.WidthInBytes = box.width_bytes;
  p.Height = box.height;
  p.Depth = box.depth;
  copy->size_bytes = static_cast<uint64_t>(total);
  copy->direction = to.is_host ? CopyDirection::kDown : from.is_host ? CopyDirection::kUp : CopyDirection::kDevice;
  return CUDA_SUCCESS;
}

CUresult CheckFill(ServedRequest& served, const shm::Fill& fill) {
  if (fill.element_bytes != 1 && fill.element_bytes != 2 && fill.element_bytes != 4) {
    return served.Malformed("fill with elements of an impossible size");
  }
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (fill.width > kMaxExtent || fill.height > kMaxExtent || (fill.height > 1 && fill.pitch_bytes > kMaxExtent)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Wide row = Wide{fill.width} * fill.element_bytes;
  const Wide extent = fill.height == 1 ? row : Wide{fill.pitch_bytes} * (Wide{fill.height} - 1) + row;
  if (extent > UINT64_MAX / 2 || (fill.height > 1 && fill.pitch_bytes < row)) return CUDA_ERROR_INVALID_VALUE;
  return served.OwnsAddresses(fill.address, static_cast<uint64_t>(extent)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tally::server
