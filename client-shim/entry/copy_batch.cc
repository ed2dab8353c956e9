// Batches of 3-D copies: each becomes a copy of its own, in stream order, which is the strictest of the orders that a
// batch may ask for.
#include "client-shim/entry/copy_plan.h"
#include "client-shim/state/refusals.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

// What a copy's extents count: bytes between pointers, the array's elements otherwise. 0: an operand makes no sense.
CUresult ElementBytes(const CUDA_MEMCPY3D_BATCH_OP& copy, size_t* bytes) {
  *bytes = 1;
  bool is_known = false;
  for (const CUmemcpy3DOperand* side : {&copy.src, &copy.dst}) {
    if (side->type == CU_MEMCPY_OPERAND_TYPE_POINTER) continue;
    if (side->type != CU_MEMCPY_OPERAND_TYPE_ARRAY || side->op.array.array == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    if (const CUresult result = wire::cuArray3DGetDescriptor_v2(&descriptor, side->op.array.array);
        result != CUDA_SUCCESS)
      return result;
    size_t channel_bytes = 4;
    switch (descriptor.Format) {
      case CU_AD_FORMAT_UNSIGNED_INT8:
      case CU_AD_FORMAT_SIGNED_INT8:
        channel_bytes = 1;
        break;
      case CU_AD_FORMAT_UNSIGNED_INT16:
      case CU_AD_FORMAT_SIGNED_INT16:
      case CU_AD_FORMAT_HALF:
        channel_bytes = 2;
        break;
      case CU_AD_FORMAT_UNSIGNED_INT32:
      case CU_AD_FORMAT_SIGNED_INT32:
      case CU_AD_FORMAT_FLOAT:
        break;
      default:
        return RefuseUse("cuMemcpy3DBatchAsync: arrays of packed or compressed formats");
    }
    const size_t element_bytes = channel_bytes * descriptor.NumChannels;
    if (is_known && element_bytes != *bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = element_bytes;
    is_known = true;
  }
  return CUDA_SUCCESS;
}

// One side as CUDA_MEMCPY3D has it.
struct Side {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr pointer = 0;
  CUarray array = nullptr;
  size_t x_bytes = 0, y = 0, z = 0, pitch = 0, height = 0;
};

CUresult ReadSide(const CUmemcpy3DOperand& operand, const CUextent3D& extent, size_t element_bytes, Side* side) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    side->type = CU_MEMORYTYPE_ARRAY;
    side->array = operand.op.array.array;
    side->x_bytes = operand.op.array.offset.x * element_bytes;
    side->y = operand.op.array.offset.y;
    side->z = operand.op.array.offset.z;
    return CUDA_SUCCESS;
  }
  const size_t row = operand.op.ptr.rowLength != 0 ? operand.op.ptr.rowLength : extent.width;
  side->height = operand.op.ptr.layerHeight != 0 ? operand.op.ptr.layerHeight : extent.height;
  if (row < extent.width || side->height < extent.height) return CUDA_ERROR_INVALID_VALUE;
  side->pointer = operand.op.ptr.ptr;
  side->pitch = row * element_bytes;
  return CUDA_SUCCESS;
}

CUresult CopyOne(const CUDA_MEMCPY3D_BATCH_OP& copy, CUstream stream) {
  const CUextent3D& extent = copy.extent;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  if (copy.srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || copy.srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
    return CUDA_ERROR_INVALID_VALUE;
  size_t element_bytes = 0;
  if (const CUresult result = ElementBytes(copy, &element_bytes); result != CUDA_SUCCESS) return result;
  Side source, destination;
  if (const CUresult result = ReadSide(copy.src, extent, element_bytes, &source); result != CUDA_SUCCESS) return result;
  if (const CUresult result = ReadSide(copy.dst, extent, element_bytes, &destination); result != CUDA_SUCCESS)
    return result;
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = source.type;
  box.srcDevice = source.pointer;
  box.srcArray = source.array;
  box.srcXInBytes = source.x_bytes;
  box.srcY = source.y;
  box.srcZ = source.z;
  box.srcPitch = source.pitch;
  box.srcHeight = source.height;
  box.dstMemoryType = destination.type;
  box.dstDevice = destination.pointer;
  box.dstArray = destination.array;
  box.dstXInBytes = destination.x_bytes;
  box.dstY = destination.y;
  box.dstZ = destination.z;
  box.dstPitch = destination.pitch;
  box.dstHeight = destination.height;
  box.WidthInBytes = extent.width * element_bytes;
  box.Height = extent.height;
  box.Depth = extent.depth;
  return CopyBox3D(box, stream, false);
}

CUresult CopyBatch3D(const CUDA_MEMCPY3D_BATCH_OP* copies, size_t count, unsigned long long flags, CUstream stream,
                     size_t* fail_index) {
  if (fail_index != nullptr) *fail_index = SIZE_MAX;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (copies == nullptr || count == 0 || flags != 0 || stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = CopyOne(copies[i], stream);
    if (result == CUDA_SUCCESS) continue;
    if (fail_index != nullptr) *fail_index = i;
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx, unsigned long long flags,
                              CUstream hStream) {
  return CopyBatch3D(opList, numOps, flags, hStream, failIdx);
}
CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags,
                                 CUstream hStream) {
  return CopyBatch3D(opList, numOps, flags, hStream, nullptr);
}

}  // namespace tally::client_shim::entry
