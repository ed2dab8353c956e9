// CUDA manual: Memory Management, memset. All forms are one record; blocking ones do not block natively either (device
// memory).
#include <algorithm>
#include <mutex>

#include "client-shim/state/process.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_memory_abi.h"

namespace tally::client_shim::entry {
namespace {

// Copies may name memory of any device; fills, like kernels, only what their context may use: its own device's, and
// that of devices it was given access to.
bool MayFill(Process* process, uint64_t stream, const Allocation& allocation) {
  if (allocation.kind != MemoryKind::kDevice || allocation.is_from_pool) return true;  // the driver knows
  Contexts& contexts = process->contexts;
  const uint32_t from = ContextOfStream(stream);
  if (from == shm::kNoContext || contexts[from].device == allocation.device) return true;
  const std::lock_guard lock(contexts.mutex());
  return std::ranges::any_of(contexts.peers(), [&](const auto& pair) {
    return pair.first == from && contexts[pair.second].device == allocation.device;
  });
}

CUresult Fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element_bytes, size_t width, size_t height,
              CUstream stream, bool waits) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  if (const CUresult result = ResolveStreamForWork(*call.process, stream, &word); result != CUDA_SUCCESS) return result;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (address % element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row_bytes = uint64_t{width} * element_bytes;
  if (height > 1 && (pitch < row_bytes || pitch % element_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = call.process->addresses.Find(address);
  constexpr uint64_t kMaxExtent = uint64_t{1} << 48;  // of an address space; the product below stays a number
  if (!allocation || row_bytes > kMaxExtent || (height > 1 && height > kMaxExtent / pitch) ||
      !call.process->addresses.Covers(address, (height - 1) * pitch + row_bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (!MayFill(call.process, word, *allocation)) return CUDA_ERROR_INVALID_VALUE;
  const shm::Fill fill{
      allocation->DeviceAddressOf(address), height > 1 ? pitch : 0, width, height, word, value, element_bytes};
  if (!waits || !allocation->is_host()) return call.channel->PostStruct(shm::Op::kFill, fill);
  const Reply reply = call.channel->CallStruct(shm::Op::kFill, fill);
  return reply.result != CUDA_SUCCESS ? reply.result : FinishWait(call.channel);
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return Fill(dstDevice, 0, uc, 1, N, 1, nullptr, true);
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return Fill(dstDevice, 0, us, 2, N, 1, nullptr, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return Fill(dstDevice, 0, ui, 4, N, 1, nullptr, true);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return Fill(dstDevice, 0, uc, 1, N, 1, hStream, false);
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return Fill(dstDevice, 0, us, 2, N, 1, hStream, false);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return Fill(dstDevice, 0, ui, 4, N, 1, hStream, false);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height) {
  return Fill(dstDevice, dstPitch, uc, 1, Width, Height, nullptr, true);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height) {
  return Fill(dstDevice, dstPitch, us, 2, Width, Height, nullptr, true);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height) {
  return Fill(dstDevice, dstPitch, ui, 4, Width, Height, nullptr, true);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
                           CUstream hStream) {
  return Fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream, false);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
                            CUstream hStream) {
  return Fill(dstDevice, dstPitch, us, 2, Width, Height, hStream, false);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
                            CUstream hStream) {
  return Fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream, false);
}

}  // namespace tally::client_shim::entry
