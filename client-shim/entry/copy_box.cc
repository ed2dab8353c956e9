// Copies of two and three dimensions, and of arrays; copy_plan.h says how bytes travel.
#include <algorithm>
#include <cstring>

#include "client-shim/entry/capture_staging.h"
#include "client-shim/entry/copy_plan.h"
#include "client-shim/state/refusals.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim {
namespace {

// One side of CUDA_MEMCPY3D, by itself.
struct Side {
  CUmemorytype type;
  uint64_t address;  // device or host
  CUarray array;
  size_t x_bytes, y, z, pitch, height, lod;
};

Side SourceOf(const CUDA_MEMCPY3D& c) {
  return {c.srcMemoryType, c.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(c.srcHost) : c.srcDevice,
          c.srcArray,      c.srcXInBytes,
          c.srcY,          c.srcZ,
          c.srcPitch,      c.srcHeight,
          c.srcLOD};
}
Side DestinationOf(const CUDA_MEMCPY3D& c) {
  return {c.dstMemoryType, c.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(c.dstHost) : c.dstDevice,
          c.dstArray,      c.dstXInBytes,
          c.dstY,          c.dstZ,
          c.dstPitch,      c.dstHeight,
          c.dstLOD};
}

// Fills in the tight pitch and height where they are 0, checks them, finds out whether the side is pageable, and names
// it by its device address if it is not.
CUresult Complete(const AddressMap& addresses, const CUDA_MEMCPY3D& copy, Side* side, bool* is_pageable) {
  *is_pageable = false;
  if (side->lod != 0) return CUDA_ERROR_INVALID_VALUE;
  if (side->type == CU_MEMORYTYPE_ARRAY) return side->array != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  if (side->pitch == 0) side->pitch = side->x_bytes + copy.WidthInBytes;
  if (side->height == 0) side->height = side->y + copy.Height;
  if (side->pitch < side->x_bytes + copy.WidthInBytes || (copy.Depth > 1 && side->height < side->y + copy.Height) ||
      side->address == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = addresses.Find(side->address);
  if (!allocation) {
    *is_pageable = side->type != CU_MEMORYTYPE_DEVICE;
    return *is_pageable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t rows = (side->z + copy.Depth - 1) * side->height + side->y + copy.Height - 1;
  if (!addresses.Covers(side->address, rows * side->pitch + side->x_bytes + copy.WidthInBytes))
    return CUDA_ERROR_INVALID_VALUE;
  side->address = allocation->DeviceAddressOf(side->address);
  return CUDA_SUCCESS;
}

shm::BoxSide ByAddress(const Side& side) {
  shm::BoxSide out{};
  const bool is_array = side.type == CU_MEMORYTYPE_ARRAY;
  out.base = is_array ? reinterpret_cast<uint64_t>(side.array) : side.address;
  out.x_bytes = side.x_bytes;
  out.y = side.y;
  out.z = side.z;
  out.pitch_bytes = is_array ? 0 : side.pitch;
  out.height = is_array ? 0 : side.height;
  out.place = static_cast<uint32_t>(is_array ? shm::Place::kArray : shm::Place::kAddress);
  return out;
}

// A part of the box whose pageable bytes fit into one arena chunk: some rows of one slice, or a part of one row.
struct Slice {
  size_t x_bytes, y, z;  // within the box
  size_t width_bytes, rows;
};

// Calls `on_slice` for each, in order, until it fails.
template <typename OnSlice>
CUresult ForEachSlice(const CUDA_MEMCPY3D& copy, OnSlice on_slice) {
  const size_t width = std::min<size_t>(copy.WidthInBytes, shm::kArenaChunkBytes);
  const size_t rows = std::max<size_t>(1, shm::kArenaChunkBytes / width);
  for (size_t z = 0; z < copy.Depth; ++z) {
    for (size_t y = 0; y < copy.Height; y += rows) {
      for (size_t x = 0; x < copy.WidthInBytes; x += width) {
        const Slice slice{x, y, z, std::min(width, copy.WidthInBytes - x), std::min(rows, copy.Height - y)};
        if (const CUresult result = on_slice(slice); result != CUDA_SUCCESS) return result;
      }
    }
  }
  return CUDA_SUCCESS;
}

std::byte* RowOf(const Side& side, const Slice& slice, size_t row) {
  return reinterpret_cast<std::byte*>(side.address) +
         ((side.z + slice.z) * side.height + side.y + slice.y + row) * side.pitch + side.x_bytes + slice.x_bytes;
}

shm::BoxSide Shifted(const Side& side, const Slice& slice) {
  shm::BoxSide out = ByAddress(side);
  out.x_bytes += slice.x_bytes;
  out.y += slice.y;
  out.z += slice.z;
  return out;
}

shm::BoxSide ArenaSide(uint32_t chunk, const Slice& slice) {
  shm::BoxSide out{};
  out.base = Channel::chunk_offset(chunk);
  out.pitch_bytes = slice.width_bytes;
  out.height = slice.rows;
  out.place = static_cast<uint32_t>(shm::Place::kArena);
  return out;
}

shm::CopyBox BoxFor(const Slice& slice, uint64_t stream) {
  shm::CopyBox box{};
  box.width_bytes = slice.width_bytes;
  box.height = slice.rows;
  box.depth = 1;
  box.stream = stream;
  return box;
}

CUresult FromPageable(const Call& call, const CUDA_MEMCPY3D& copy, const Side& destination, const Side& source,
                      uint64_t stream) {
  return ForEachSlice(copy, [&](const Slice& slice) {
    uint32_t chunk = 0;
    if (const CUresult result = call.channel->NextChunk(&chunk); result != CUDA_SUCCESS) return result;
    for (size_t row = 0; row < slice.rows; ++row)
      std::memcpy(call.channel->chunk(chunk) + row * slice.width_bytes, RowOf(source, slice, row), slice.width_bytes);
    shm::CopyBox box = BoxFor(slice, stream);
    box.source = ArenaSide(chunk, slice);
    box.destination = Shifted(destination, slice);
    return call.channel->PostStruct(shm::Op::kCopyBox, box);
  });
}

CUresult ToPageable(const Call& call, const CUDA_MEMCPY3D& copy, const Side& destination, const Side& source,
                    uint64_t stream) {
  const CUresult copied = ForEachSlice(copy, [&](const Slice& slice) {
    uint32_t chunk = 0;
    if (const CUresult result = call.channel->NextChunk(&chunk); result != CUDA_SUCCESS) return result;
    shm::CopyBox box = BoxFor(slice, stream);
    box.source = Shifted(source, slice);
    box.destination = ArenaSide(chunk, slice);
    const Reply reply =
        call.channel->CallStruct(shm::Op::kCopyBox, box, WaitForDevice(*call.process, ContextOfStream(stream)));
    if (reply.result != CUDA_SUCCESS) return reply.result;
    call.channel->NoteChunkDone(chunk);
    for (size_t row = 0; row < slice.rows; ++row)
      std::memcpy(RowOf(destination, slice, row), call.channel->chunk(chunk) + row * slice.width_bytes,
                  slice.width_bytes);
    return CUDA_SUCCESS;
  });
  return copied != CUDA_SUCCESS ? copied : FinishWait(call.channel);
}

}  // namespace

CUDA_MEMCPY3D BoxOf2D(const CUDA_MEMCPY2D& c) {
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = c.srcXInBytes;
  box.srcY = c.srcY;
  box.srcMemoryType = c.srcMemoryType;
  box.srcHost = c.srcHost;
  box.srcDevice = c.srcDevice;
  box.srcArray = c.srcArray;
  box.srcPitch = c.srcPitch;
  box.dstXInBytes = c.dstXInBytes;
  box.dstY = c.dstY;
  box.dstMemoryType = c.dstMemoryType;
  box.dstHost = c.dstHost;
  box.dstDevice = c.dstDevice;
  box.dstArray = c.dstArray;
  box.dstPitch = c.dstPitch;
  box.WidthInBytes = c.WidthInBytes;
  box.Height = c.Height;
  box.Depth = 1;
  return box;
}

CUresult DescribeBox(const Process& process, const CUDA_MEMCPY3D& copy, shm::CopyBox* box) {
  Side source = SourceOf(copy), destination = DestinationOf(copy);
  bool from_pageable = false, to_pageable = false;
  if (const CUresult result = Complete(process.addresses, copy, &source, &from_pageable); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = Complete(process.addresses, copy, &destination, &to_pageable); result != CUDA_SUCCESS)
    return result;
  if (from_pageable || to_pageable)
    return RefuseUse("cuGraphAddMemcpyNode: pageable memory (capture the copy instead)");
  *box = {};
  box->source = ByAddress(source);
  box->destination = ByAddress(destination);
  box->width_bytes = copy.WidthInBytes;
  box->height = copy.Height;
  box->depth = copy.Depth;
  return CUDA_SUCCESS;
}

CUresult CopyBox3D(const CUDA_MEMCPY3D& copy, CUstream stream, bool waits) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  if (const CUresult result = ResolveStreamForWork(*call.process, stream, &word); result != CUDA_SUCCESS) return result;
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return CUDA_SUCCESS;
  Side source = SourceOf(copy), destination = DestinationOf(copy);
  bool from_pageable = false, to_pageable = false;
  if (const CUresult result = Complete(call.process->addresses, copy, &source, &from_pageable); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = Complete(call.process->addresses, copy, &destination, &to_pageable);
      result != CUDA_SUCCESS)
    return result;

  if (from_pageable || to_pageable) {
    bool is_capturing = false;
    if (const CUresult result = IsStreamCapturing(call, word, &is_capturing); result != CUDA_SUCCESS) return result;
    if (is_capturing) return RefuseUse("cuMemcpy3DAsync_v2: capture of a 2-D or 3-D copy of pageable memory");
  }
  if (from_pageable && to_pageable) {
    if (const CUresult result = entry::cuStreamSynchronize(reinterpret_cast<CUstream>(word)); result != CUDA_SUCCESS)
      return result;
    return ForEachSlice(copy, [&](const Slice& slice) {
      for (size_t row = 0; row < slice.rows; ++row)
        std::memmove(RowOf(destination, slice, row), RowOf(source, slice, row), slice.width_bytes);
      return CUDA_SUCCESS;
    });
  }
  if (from_pageable) {
    const CUresult result = FromPageable(call, copy, destination, source, word);
    return result == CUDA_SUCCESS && waits ? entry::cuStreamSynchronize(stream) : result;
  }
  if (to_pageable) return ToPageable(call, copy, destination, source, word);

  shm::CopyBox box{};
  box.source = ByAddress(source);
  box.destination = ByAddress(destination);
  box.width_bytes = copy.WidthInBytes;
  box.height = copy.Height;
  box.depth = copy.Depth;
  box.stream = word;
  // Blocking copies between device addresses return at once. An array's extents are known to the executor only: whether
  // the box fits is its answer.
  const auto is_awaited = [&](const Side& side) {
    if (side.type == CU_MEMORYTYPE_ARRAY) return true;
    const auto allocation = call.process->addresses.Find(side.address);
    return allocation && allocation->is_host();
  };
  if (!waits || (!is_awaited(source) && !is_awaited(destination))) {
    return call.channel->PostStruct(shm::Op::kCopyBox, box);
  }
  const Reply reply = call.channel->CallStruct(shm::Op::kCopyBox, box);
  return reply.result != CUDA_SUCCESS ? reply.result : FinishWait(call.channel);
}

namespace entry {
namespace {

CUDA_MEMCPY3D WithoutPeers(const CUDA_MEMCPY3D_PEER& c) {
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = c.srcXInBytes;
  box.srcY = c.srcY;
  box.srcZ = c.srcZ;
  box.srcLOD = c.srcLOD;
  box.srcMemoryType = c.srcMemoryType;
  box.srcHost = c.srcHost;
  box.srcDevice = c.srcDevice;
  box.srcArray = c.srcArray;
  box.srcPitch = c.srcPitch;
  box.srcHeight = c.srcHeight;
  box.dstXInBytes = c.dstXInBytes;
  box.dstY = c.dstY;
  box.dstZ = c.dstZ;
  box.dstLOD = c.dstLOD;
  box.dstMemoryType = c.dstMemoryType;
  box.dstHost = c.dstHost;
  box.dstDevice = c.dstDevice;
  box.dstArray = c.dstArray;
  box.dstPitch = c.dstPitch;
  box.dstHeight = c.dstHeight;
  box.WidthInBytes = c.WidthInBytes;
  box.Height = c.Height;
  box.Depth = c.Depth;
  return box;
}

// One row between an array (at a byte offset) and something else.
CUDA_MEMCPY3D Row(size_t size_bytes) {
  CUDA_MEMCPY3D box{};
  box.WidthInBytes = size_bytes;
  box.Height = 1;
  box.Depth = 1;
  return box;
}
void FromArray(CUDA_MEMCPY3D* box, CUarray array, size_t offset) {
  box->srcMemoryType = CU_MEMORYTYPE_ARRAY;
  box->srcArray = array;
  box->srcXInBytes = offset;
}
void ToArray(CUDA_MEMCPY3D* box, CUarray array, size_t offset) {
  box->dstMemoryType = CU_MEMORYTYPE_ARRAY;
  box->dstArray = array;
  box->dstXInBytes = offset;
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox3D(BoxOf2D(*pCopy), nullptr, true);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return entry::cuMemcpy2D_v2(pCopy); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox3D(BoxOf2D(*pCopy), hStream, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox3D(*pCopy, nullptr, true);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox3D(*pCopy, hStream, false);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox3D(WithoutPeers(*pCopy), nullptr, true);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox3D(WithoutPeers(*pCopy), hStream, false);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  CUDA_MEMCPY3D box = Row(ByteCount);
  FromArray(&box, srcArray, srcOffset);
  ToArray(&box, dstArray, dstOffset);
  return CopyBox3D(box, nullptr, true);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  CUDA_MEMCPY3D box = Row(ByteCount);
  FromArray(&box, srcArray, srcOffset);
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = dstDevice;
  return CopyBox3D(box, nullptr, true);
}
CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
  CUDA_MEMCPY3D box = Row(ByteCount);
  ToArray(&box, dstArray, dstOffset);
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = srcDevice;
  return CopyBox3D(box, nullptr, true);
}
CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream) {
  CUDA_MEMCPY3D box = Row(ByteCount);
  FromArray(&box, srcArray, srcOffset);
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = dstHost;
  return CopyBox3D(box, hStream, false);
}
CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  CUDA_MEMCPY3D box = Row(ByteCount);
  FromArray(&box, srcArray, srcOffset);
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = dstHost;
  return CopyBox3D(box, nullptr, true);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  CUDA_MEMCPY3D box = Row(ByteCount);
  ToArray(&box, dstArray, dstOffset);
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = srcHost;
  return CopyBox3D(box, hStream, false);
}
CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount) {
  CUDA_MEMCPY3D box = Row(ByteCount);
  ToArray(&box, dstArray, dstOffset);
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = srcHost;
  return CopyBox3D(box, nullptr, true);
}

}  // namespace entry
}  // namespace tally::client_shim
