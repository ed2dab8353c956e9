#include "sim-driver/api/copy.h"

#include <algorithm>
#include <cstring>

#include "sim-driver/api/array.h"
#include "sim-driver/api/capture.h"
#include "sim-driver/api/error.h"

namespace tally::sim_driver {
namespace {

// Larger pageable sources are waited for instead of being copied aside.
constexpr uint64_t kMaxStagedBytes = 64 << 10;

bool IsKnown(uint64_t address) {
  const auto region = MemoryMap::Get().Find(address);
  return region && region->kind != MemoryKind::kReserved;
}

// Bytes from the first to the last byte that is touched. Fails with INVALID_VALUE when that does not fit a size.
uint64_t Extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t slice) {
  uint64_t rows = 0, slices = 0, extent = 0;
  const bool overflows =
      __builtin_mul_overflow(pitch, height - 1, &rows) || __builtin_mul_overflow(slice, depth - 1, &slices) ||
      __builtin_add_overflow(rows, slices, &extent) || __builtin_add_overflow(extent, width, &extent);
  Require(!overflows, CUDA_ERROR_INVALID_VALUE);
  return extent;
}

bool IsEmpty(const CopyOperation& copy) { return copy.width == 0 || copy.height == 0 || copy.depth == 0; }

uint64_t SourceExtent(const CopyOperation& copy) {
  return Extent(copy.width, copy.height, copy.depth, copy.source_pitch, copy.source_slice);
}
uint64_t DestinationExtent(const CopyOperation& copy) {
  return Extent(copy.width, copy.height, copy.depth, copy.destination_pitch, copy.destination_slice);
}

void CheckEnds(CopyOperation& copy, CopyEnd destination_end, CopyEnd source_end) {
  if (IsEmpty(copy)) return;
  const uint64_t from = SourceExtent(copy);
  const uint64_t to = DestinationExtent(copy);
  Require(copy.source != 0 && copy.destination != 0, CUDA_ERROR_INVALID_VALUE);
  Require(copy.source + from > copy.source && copy.destination + to > copy.destination, CUDA_ERROR_INVALID_VALUE);
  copy.is_source_device = source_end == CopyEnd::kDevice || IsKnown(copy.source);
  copy.is_destination_device = destination_end == CopyEnd::kDevice || IsKnown(copy.destination);
  const MemoryMap& map = MemoryMap::Get();
  // An end that begins in known memory must lie in it whole.
  Require(!copy.is_source_device || map.IsAccessible(copy.source, from, false), CUDA_ERROR_INVALID_VALUE);
  Require(!copy.is_destination_device || map.IsAccessible(copy.destination, to, true), CUDA_ERROR_INVALID_VALUE);
  // An address in the window that is no allocation is a stale device pointer, never host memory.
  Require(copy.is_source_device || !map.IsInWindow(copy.source), CUDA_ERROR_INVALID_VALUE);
  Require(copy.is_destination_device || !map.IsInWindow(copy.destination), CUDA_ERROR_INVALID_VALUE);
}

uint64_t EndAddress(CUmemorytype type, const void* host, CUdeviceptr device, CopyEnd& end) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      end = CopyEnd::kHost;
      return reinterpret_cast<uint64_t>(host);
    case CU_MEMORYTYPE_DEVICE:
      end = CopyEnd::kDevice;
      return device;
    case CU_MEMORYTYPE_UNIFIED:
      end = CopyEnd::kEither;
      return device;
    default:
      Fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// Where the box lies in an array, if it fits.
void InArray(CUarray handle, uint64_t x, uint64_t y, uint64_t z, const CopyOperation& box, uint64_t& address,
             uint64_t& pitch, uint64_t& slice) {
  const ArrayPtr array = FindArray(handle);
  const Image::Level& layout = array->layout;
  const uint64_t num_slices = array->num_bytes / layout.slice_bytes;
  const auto fits = [](uint64_t begin, uint64_t size, uint64_t limit) {
    return begin <= limit && size <= limit - begin;
  };
  Require(x % array->texel_bytes == 0 && box.width % array->texel_bytes == 0, CUDA_ERROR_INVALID_VALUE);
  Require(fits(x, box.width, layout.row_bytes) && fits(y, box.height, layout.height) && fits(z, box.depth, num_slices),
          CUDA_ERROR_INVALID_VALUE);
  pitch = layout.row_bytes;
  slice = layout.slice_bytes;
  address = layout.base + z * slice + y * pitch + x;
}

}  // namespace

CopyOperation LinearCopy(uint64_t destination, CopyEnd destination_end, uint64_t source, CopyEnd source_end,
                         uint64_t num_bytes) {
  CopyOperation copy;
  copy.source = source;
  copy.destination = destination;
  copy.width = num_bytes;
  const auto type = [](CopyEnd end) {
    return end == CopyEnd::kHost     ? CU_MEMORYTYPE_HOST
           : end == CopyEnd::kDevice ? CU_MEMORYTYPE_DEVICE
                                     : CU_MEMORYTYPE_UNIFIED;
  };
  copy.given.srcMemoryType = type(source_end);
  copy.given.srcDevice = source_end == CopyEnd::kHost ? 0 : source;
  copy.given.srcHost = source_end == CopyEnd::kHost ? reinterpret_cast<const void*>(source) : nullptr;
  copy.given.dstMemoryType = type(destination_end);
  copy.given.dstDevice = destination_end == CopyEnd::kHost ? 0 : destination;
  copy.given.dstHost = destination_end == CopyEnd::kHost ? reinterpret_cast<void*>(destination) : nullptr;
  copy.given.WidthInBytes = num_bytes;
  copy.given.Height = 1;
  copy.given.Depth = 1;
  CheckEnds(copy, destination_end, source_end);
  return copy;
}

CopyOperation BoxCopy(const CUDA_MEMCPY3D& given) {
  CopyOperation copy;
  copy.given = given;
  copy.width = given.WidthInBytes;
  copy.height = given.Height;
  copy.depth = given.Depth;
  Require(given.srcLOD == 0 && given.dstLOD == 0, CUDA_ERROR_INVALID_VALUE);
  CopyEnd source_end = CopyEnd::kDevice, destination_end = CopyEnd::kDevice;
  const bool from_array = given.srcMemoryType == CU_MEMORYTYPE_ARRAY;
  const bool to_array = given.dstMemoryType == CU_MEMORYTYPE_ARRAY;
  if (!from_array) copy.source = EndAddress(given.srcMemoryType, given.srcHost, given.srcDevice, source_end);
  if (!to_array) copy.destination = EndAddress(given.dstMemoryType, given.dstHost, given.dstDevice, destination_end);
  if (from_array) {
    InArray(given.srcArray, given.srcXInBytes, given.srcY, given.srcZ, copy, copy.source, copy.source_pitch,
            copy.source_slice);
  }
  if (to_array) {
    InArray(given.dstArray, given.dstXInBytes, given.dstY, given.dstZ, copy, copy.destination, copy.destination_pitch,
            copy.destination_slice);
  }
  if (IsEmpty(copy)) return copy;
  // Native drivers take 0 for "rows touch" where that means something.
  const auto layout = [](uint64_t pitch, uint64_t height, uint64_t x, uint64_t y, uint64_t z, const CopyOperation& box,
                         uint64_t& address, uint64_t& out_pitch, uint64_t& out_slice) {
    if (pitch == 0 && (box.height == 1 && y == 0)) pitch = x + box.width;
    if (height == 0) height = y + box.height;
    Require(pitch >= x + box.width && x + box.width >= x, CUDA_ERROR_INVALID_VALUE);
    Require(box.depth == 1 || height >= y + box.height, CUDA_ERROR_INVALID_VALUE);
    out_pitch = pitch;
    Require(!__builtin_mul_overflow(pitch, height, &out_slice), CUDA_ERROR_INVALID_VALUE);
    uint64_t offset = 0, slices = 0;
    Require(!__builtin_mul_overflow(out_pitch, y, &offset) && !__builtin_mul_overflow(out_slice, z, &slices) &&
                !__builtin_add_overflow(offset, slices, &offset) && !__builtin_add_overflow(offset, x, &offset),
            CUDA_ERROR_INVALID_VALUE);
    Require(!__builtin_add_overflow(address, offset, &address), CUDA_ERROR_INVALID_VALUE);
  };
  Require(copy.source != 0 && copy.destination != 0, CUDA_ERROR_INVALID_VALUE);
  if (!from_array) {
    layout(given.srcPitch, given.srcHeight, given.srcXInBytes, given.srcY, given.srcZ, copy, copy.source,
           copy.source_pitch, copy.source_slice);
  }
  if (!to_array) {
    layout(given.dstPitch, given.dstHeight, given.dstXInBytes, given.dstY, given.dstZ, copy, copy.destination,
           copy.destination_pitch, copy.destination_slice);
  }
  CheckEnds(copy, destination_end, source_end);
  return copy;
}

CUDA_MEMCPY3D Box(const CUDA_MEMCPY2D& copy) {
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = copy.srcXInBytes;
  box.srcY = copy.srcY;
  box.srcMemoryType = copy.srcMemoryType;
  box.srcHost = copy.srcHost;
  box.srcDevice = copy.srcDevice;
  box.srcPitch = copy.srcPitch;
  box.dstXInBytes = copy.dstXInBytes;
  box.dstY = copy.dstY;
  box.dstMemoryType = copy.dstMemoryType;
  box.dstHost = copy.dstHost;
  box.dstDevice = copy.dstDevice;
  box.dstPitch = copy.dstPitch;
  box.WidthInBytes = copy.WidthInBytes;
  box.Height = copy.Height;
  box.Depth = 1;
  return box;
}

CUDA_MEMCPY3D Box(const CUDA_MEMCPY3D_PEER& copy) {
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = copy.srcXInBytes;
  box.srcY = copy.srcY;
  box.srcZ = copy.srcZ;
  box.srcMemoryType = copy.srcMemoryType;
  box.srcHost = copy.srcHost;
  box.srcDevice = copy.srcDevice;
  box.srcPitch = copy.srcPitch;
  box.srcHeight = copy.srcHeight;
  box.dstXInBytes = copy.dstXInBytes;
  box.dstY = copy.dstY;
  box.dstZ = copy.dstZ;
  box.dstMemoryType = copy.dstMemoryType;
  box.dstHost = copy.dstHost;
  box.dstDevice = copy.dstDevice;
  box.dstPitch = copy.dstPitch;
  box.dstHeight = copy.dstHeight;
  box.WidthInBytes = copy.WidthInBytes;
  box.Height = copy.Height;
  box.Depth = copy.Depth;
  return box;
}

namespace {

uint64_t MemsetExtent(const CUDA_MEMSET_NODE_PARAMS& memset) {
  uint64_t row = 0;
  Require(!__builtin_mul_overflow(memset.width, uint64_t{memset.elementSize}, &row), CUDA_ERROR_INVALID_VALUE);
  Require(memset.height <= 1 || memset.pitch >= row, CUDA_ERROR_INVALID_VALUE);
  return Extent(row, memset.height, 1, memset.pitch, 0);
}

template <typename Element>
void Fill(uint64_t row, uint64_t count, unsigned value) {
  auto* const first = reinterpret_cast<Element*>(row);
  std::fill(first, first + count, static_cast<Element>(value));
}

}  // namespace

MemsetOperation CheckedMemset(const CUDA_MEMSET_NODE_PARAMS& memset) {
  Require(memset.elementSize == 1 || memset.elementSize == 2 || memset.elementSize == 4, CUDA_ERROR_INVALID_VALUE);
  if (memset.width == 0 || memset.height == 0) return {memset, nullptr};
  Require(memset.dst != 0 && memset.dst % memset.elementSize == 0, CUDA_ERROR_INVALID_VALUE);
  Require(memset.height == 1 || memset.pitch % memset.elementSize == 0, CUDA_ERROR_INVALID_VALUE);
  Require(MemoryMap::Get().IsAccessible(memset.dst, MemsetExtent(memset), true), CUDA_ERROR_INVALID_VALUE);
  return {memset, nullptr};
}

std::optional<uint64_t> RunMemset(const CUDA_MEMSET_NODE_PARAMS& memset) {
  if (memset.width == 0 || memset.height == 0) return std::nullopt;
  if (!MemoryMap::Get().IsAccessible(memset.dst, MemsetExtent(memset), true)) return memset.dst;
  for (uint64_t y = 0; y < memset.height; ++y) {
    const uint64_t row = memset.dst + y * memset.pitch;
    switch (memset.elementSize) {
      case 1:
        std::memset(reinterpret_cast<void*>(row), static_cast<int>(memset.value & 0xff), memset.width);
        break;
      case 2:
        Fill<uint16_t>(row, memset.width, memset.value);
        break;
      default:
        Fill<uint32_t>(row, memset.width, memset.value);
        break;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> RunCopy(const CopyOperation& copy) {
  if (IsEmpty(copy)) return std::nullopt;
  const MemoryMap& map = MemoryMap::Get();
  if (copy.is_source_device && !map.IsAccessible(copy.source, SourceExtent(copy), false)) return copy.source;
  if (copy.is_destination_device && !map.IsAccessible(copy.destination, DestinationExtent(copy), true)) {
    return copy.destination;
  }
  const uint64_t source = copy.staged ? reinterpret_cast<uint64_t>(copy.staged->data()) : copy.source;
  for (uint64_t z = 0; z < copy.depth; ++z) {
    for (uint64_t y = 0; y < copy.height; ++y) {
      std::memmove(reinterpret_cast<void*>(copy.destination + z * copy.destination_slice + y * copy.destination_pitch),
                   reinterpret_cast<const void*>(source + z * copy.source_slice + y * copy.source_pitch), copy.width);
    }
  }
  return std::nullopt;
}

void IssueCopy(CUstream stream, CopyOperation copy, CopyCall call) {
  const StreamUse use = UseStream(stream);
  const bool is_pageable = !IsEmpty(copy) && (!copy.is_source_device || !copy.is_destination_device);
  if (call == CopyCall::kBlocking) RefuseUnsafeCall(use.context);
  if (IsCapturing(use.stream)) {
    Require(call == CopyCall::kAsync, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    Issue(use, std::move(copy));
    return;
  }
  bool must_wait = call == CopyCall::kBlocking && is_pageable;
  if (call == CopyCall::kBlocking && !is_pageable) {
    // Pinned ends: blocking as well, unless both ends are the device's own.
    const auto is_host = [](uint64_t address) {
      const auto region = MemoryMap::Get().Find(address);
      return region && region->IsHost();
    };
    must_wait = !IsEmpty(copy) && (is_host(copy.source) || is_host(copy.destination));
  }
  if (call == CopyCall::kAsync && is_pageable) {
    // The program may reuse a pageable source, and read a pageable destination, as soon as the call returns.
    if (copy.is_destination_device && SourceExtent(copy) <= kMaxStagedBytes) {
      const auto* const first = reinterpret_cast<const std::byte*>(copy.source);
      copy.staged = std::make_shared<std::vector<std::byte>>(first, first + SourceExtent(copy));
    } else {
      must_wait = true;
    }
  }
  const TaskPtr task = Issue(use, std::move(copy));
  if (!must_wait) return;
  Timeline::Get().Wait(task);
  if (call == CopyCall::kBlocking) use.context->printf_buffer().Flush();
  RequireSuccess(use.context->error());
}

void IssueMemset(CUstream stream, const CUDA_MEMSET_NODE_PARAMS& memset, CopyCall call) {
  const StreamUse use = UseStream(stream);
  MemsetOperation operation = CheckedMemset(memset);
  // Unlike a copy a fill needs what a kernel would need.
  const bool is_empty = memset.width == 0 || memset.height == 0;
  Require(is_empty || use.context->memory()->Find(memset.dst).size_bytes != 0, CUDA_ERROR_INVALID_VALUE);
  if (call == CopyCall::kBlocking) RefuseUnsafeCall(use.context);
  const TaskPtr task = Issue(use, std::move(operation));
  if (call == CopyCall::kAsync || !task) return;
  // Natively a memset of pinned memory is over when the call returns; of device memory it is not, but may be.
  const auto region = MemoryMap::Get().Find(memset.dst);
  if (region && (region->IsHost() || region->kind == MemoryKind::kManaged)) Timeline::Get().Wait(task);
}

}  // namespace tally::sim_driver
