// One-dimensional copies; copy_plan.h says how bytes travel.
#include <algorithm>
#include <cstring>

#include "client-shim/entry/capture_staging.h"
#include "client-shim/entry/copy_plan.h"
#include "client-shim/state/streams.h"
#include "client-shim/transport/session.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim {
namespace {

constexpr auto kAddress = static_cast<uint32_t>(shm::Place::kAddress);
constexpr auto kArena = static_cast<uint32_t>(shm::Place::kArena);
constexpr auto kInline = static_cast<uint32_t>(shm::Place::kInline);

// Pageable, or known to the device, and then by what address? CUDA_ERROR_INVALID_VALUE for device addresses that are
// nobody's.
CUresult Classify(const AddressMap& addresses, LinearSide* side, size_t size_bytes, bool* is_pageable) {
  const auto allocation = addresses.Find(side->address);
  if (!allocation) {
    *is_pageable = side->kind != SideKind::kDevice;
    return side->address != 0 && *is_pageable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  *is_pageable = false;
  if (!allocation->Contains(side->address, size_bytes) && !addresses.Covers(side->address, size_bytes))
    return CUDA_ERROR_INVALID_VALUE;
  side->address = allocation->DeviceAddressOf(side->address);
  return CUDA_SUCCESS;
}

// A blocking copy from pageable memory natively waits for the work before it, and returns when its bytes have been
// read. Here it returns as early only where nobody could tell: what came before is known to be over, and what comes
// next, on whatever stream of the context, the executor has wait for the copy (kReturnsEarly). Others who could look:
// another program, another context, the program itself at managed variables.
bool MayReturnEarly(const Call& call, uint64_t stream) {
  const Process& process = *call.process;
  return stream == shm::kLegacyStream && call.channel->WasFoundQuiet(ContextOfStream(stream)) &&
         !process.managed.any() && !process.contexts.were_several() &&
         !process.shares_memory.load(std::memory_order_relaxed);
}

// Sends the copy that was begun, and waits for it and for what came before.
CUresult SendAndWait(const Call& call, uint64_t stream) {
  const uint32_t context = ContextOfStream(stream);
  const Reply reply = call.channel->Call(WaitForDevice(*call.process, context));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  if (stream == shm::kLegacyStream) call.channel->NoteQuiet(context);
  return FinishWait(call.channel);
}

CUresult FromPageable(const Call& call, uint64_t destination, const std::byte* source, size_t size_bytes,
                      uint64_t stream, bool waits) {
  const bool returns_early = waits && MayReturnEarly(call, stream);
  const auto send = [&](bool is_last) {
    if (is_last && waits && !returns_early) return SendAndWait(call, stream);
    call.channel->Post(is_last && returns_early ? shm::kReturnsEarly : 0);
    if (returns_early) call.channel->KeepQuiet();
    return CUDA_SUCCESS;
  };
  if (size_bytes <= shm::kMaxInlineBytes) {
    std::byte* room = call.channel->Begin(shm::Op::kCopy, static_cast<uint32_t>(sizeof(shm::Copy) + size_bytes));
    if (room == nullptr) return call.channel->failure();
    const shm::Copy copy{destination, 0, size_bytes, stream, kAddress, kInline};
    std::memcpy(room, &copy, sizeof(copy));
    std::memcpy(room + sizeof(copy), source, size_bytes);
    return send(true);
  }
  CopyThreads::Turn threads(call.channel->session()->copy_threads(), size_bytes);
  for (size_t offset = 0; offset < size_bytes;) {
    const size_t piece = std::min<size_t>(shm::kArenaChunkBytes, size_bytes - offset);
    uint32_t chunk = 0;
    if (const CUresult result = call.channel->NextChunk(&chunk); result != CUDA_SUCCESS) return result;
    threads.Copy(call.channel->chunk(chunk), source + offset, piece);
    std::byte* room = call.channel->Begin(shm::Op::kCopy, sizeof(shm::Copy));
    if (room == nullptr) return call.channel->failure();
    const shm::Copy copy{destination + offset, Channel::chunk_offset(chunk), piece, stream, kAddress, kArena};
    std::memcpy(room, &copy, sizeof(copy));
    offset += piece;
    if (const CUresult result = send(offset == size_bytes); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult ToPageable(const Call& call, std::byte* destination, uint64_t source, size_t size_bytes, uint64_t stream) {
  const WaitFor wait = WaitForDevice(*call.process, ContextOfStream(stream));
  // One chunk: the reply to the copy itself says that the bytes are there.
  if (size_bytes <= shm::kArenaChunkBytes) {
    uint32_t chunk = 0;
    if (const CUresult result = call.channel->NextChunk(&chunk); result != CUDA_SUCCESS) return result;
    const shm::Copy copy{Channel::chunk_offset(chunk), source, size_bytes, stream, kArena, kAddress};
    const Reply reply = call.channel->CallStruct(shm::Op::kCopy, copy, wait);
    if (reply.result != CUDA_SUCCESS) return reply.result;
    call.channel->NoteChunkDone(chunk);
    if (stream == shm::kLegacyStream) call.channel->NoteQuiet(ContextOfStream(stream));
    std::memcpy(destination, call.channel->chunk(chunk), size_bytes);
    return FinishWait(call.channel);
  }
  // More: the next chunks are on their way while one is emptied.
  CopyThreads::Turn threads(call.channel->session()->copy_threads(), size_bytes);
  struct Pending {
    uint32_t chunk;
    size_t offset, size;
  };
  Pending pending[shm::kArenaChunks];
  size_t first = 0, count = 0;
  for (size_t offset = 0; offset < size_bytes || count != 0;) {
    if (offset < size_bytes && count < shm::kArenaChunks) {
      const size_t piece = std::min<size_t>(shm::kArenaChunkBytes, size_bytes - offset);
      uint32_t chunk = 0;
      if (const CUresult result = call.channel->NextChunk(&chunk); result != CUDA_SUCCESS) return result;
      const shm::Copy copy{Channel::chunk_offset(chunk), source + offset, piece, stream, kArena, kAddress};
      if (const CUresult result = call.channel->PostStruct(shm::Op::kCopy, copy); result != CUDA_SUCCESS) return result;
      pending[(first + count++) % shm::kArenaChunks] = {chunk, offset, piece};
      offset += piece;
      continue;
    }
    const Pending oldest = pending[first];
    first = (first + 1) % shm::kArenaChunks;
    --count;
    if (const CUresult result = call.channel->AwaitChunk(oldest.chunk, wait); result != CUDA_SUCCESS) return result;
    threads.Copy(destination + oldest.offset, call.channel->chunk(oldest.chunk), oldest.size);
  }
  return FinishWait(call.channel);
}

CUresult CopyCaptured(const Call& call, const LinearSide& destination, const LinearSide& source, size_t size_bytes,
                      uint64_t stream, bool from_pageable, bool to_pageable) {
  if (from_pageable && to_pageable)
    return CaptureHostCopy(call, stream, reinterpret_cast<void*>(destination.address),
                           reinterpret_cast<const void*>(source.address), size_bytes);
  void* staging = nullptr;
  if (const CUresult result = AllocateStaging(call, size_bytes, &staging); result != CUDA_SUCCESS) return result;
  shm::Copy copy{destination.address, source.address, size_bytes, stream, kAddress, kAddress};
  if (from_pageable) {
    if (const CUresult result =
            CaptureHostCopy(call, stream, staging, reinterpret_cast<const void*>(source.address), size_bytes);
        result != CUDA_SUCCESS)
      return result;
    copy.source = reinterpret_cast<uint64_t>(staging);
    return call.channel->PostStruct(shm::Op::kCopy, copy);
  }
  copy.destination = reinterpret_cast<uint64_t>(staging);
  if (const CUresult result = call.channel->PostStruct(shm::Op::kCopy, copy); result != CUDA_SUCCESS) return result;
  return CaptureHostCopy(call, stream, reinterpret_cast<void*>(destination.address), staging, size_bytes);
}

}  // namespace

CUresult CopyLinear(LinearSide destination, LinearSide source, size_t size_bytes, CUstream stream, bool waits) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  if (const CUresult result = ResolveStreamForWork(*call.process, stream, &word); result != CUDA_SUCCESS) return result;
  if (size_bytes == 0) return CUDA_SUCCESS;
  bool to_pageable = false, from_pageable = false;
  const AddressMap& addresses = call.process->addresses;
  if (const CUresult result = Classify(addresses, &destination, size_bytes, &to_pageable); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = Classify(addresses, &source, size_bytes, &from_pageable); result != CUDA_SUCCESS)
    return result;

  if (from_pageable || to_pageable) {
    bool is_capturing = false;
    if (const CUresult result = IsStreamCapturing(call, word, &is_capturing); result != CUDA_SUCCESS) return result;
    if (is_capturing) {
      if (waits) return call.process->captures.Spoil(word), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      return CopyCaptured(call, destination, source, size_bytes, word, from_pageable, to_pageable);
    }
  }
  if (from_pageable && to_pageable) {
    // Host to host, in the stream's order.
    if (const CUresult result = entry::cuStreamSynchronize(reinterpret_cast<CUstream>(word)); result != CUDA_SUCCESS)
      return result;
    std::memmove(reinterpret_cast<void*>(destination.address), reinterpret_cast<const void*>(source.address),
                 size_bytes);
    return CUDA_SUCCESS;
  }
  if (from_pageable)
    return FromPageable(call, destination.address, reinterpret_cast<const std::byte*>(source.address), size_bytes, word,
                        waits);
  if (to_pageable)
    return ToPageable(call, reinterpret_cast<std::byte*>(destination.address), source.address, size_bytes, word);

  const shm::Copy copy{destination.address, source.address, size_bytes, word, kAddress, kAddress};
  // Between device addresses the blocking forms do not block natively either.
  const auto is_host = [&](uint64_t address) {
    const auto allocation = addresses.Find(address);
    return allocation && allocation->is_host();
  };
  if (!waits || (!is_host(destination.address) && !is_host(source.address)))
    return call.channel->PostStruct(shm::Op::kCopy, copy);
  const Reply reply =
      call.channel->CallStruct(shm::Op::kCopy, copy, WaitForDevice(*call.process, ContextOfStream(word)));
  return reply.result != CUDA_SUCCESS ? reply.result : FinishWait(call.channel);
}

namespace entry {
namespace {

LinearSide Device(CUdeviceptr address) { return {SideKind::kDevice, address}; }
LinearSide Host(const void* address) { return {SideKind::kHost, reinterpret_cast<uint64_t>(address)}; }
LinearSide Unified(CUdeviceptr address) { return {SideKind::kUnified, address}; }

// The blocking forms. What they wrote to managed variables has arrived when they return, whatever they wait for
// otherwise.
CUresult CopyNow(LinearSide destination, LinearSide source, size_t size_bytes) {
  const CUresult result = CopyLinear(destination, source, size_bytes, nullptr, true);
  const Process* process = CurrentProcess();
  if (result != CUDA_SUCCESS || !process->managed.any()) return result;
  return entry::cuStreamSynchronize(nullptr);
}

CUresult CheckPeers(CUcontext destination, CUcontext source) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  for (const CUcontext context : {destination, source}) {
    if (context != nullptr && process->contexts.Find(context) == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  }
  return CUDA_SUCCESS;
}

CUresult CopyBatch(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
                   size_t* attribute_indices, size_t num_attributes, size_t* fail_index, CUstream stream) {
  if (fail_index != nullptr) *fail_index = SIZE_MAX;
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 || attributes == nullptr ||
      attribute_indices == nullptr || num_attributes == 0 || num_attributes > count || stream == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  // In stream order always: the strictest of the orders an attribute may ask for.
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = CopyLinear(Unified(dsts[i]), Unified(srcs[i]), sizes[i], stream, false);
    if (result == CUDA_SUCCESS) continue;
    if (fail_index != nullptr) *fail_index = i;
    return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return CopyNow(Unified(dst), Unified(src), ByteCount);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return CopyLinear(Unified(dst), Unified(src), ByteCount, hStream, false);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return CopyNow(Device(dstDevice), Host(srcHost), ByteCount);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream) {
  return CopyLinear(Device(dstDevice), Host(srcHost), ByteCount, hStream, false);
}
CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return CopyNow(Host(dstHost), Device(srcDevice), ByteCount);
}
CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return CopyLinear(Host(dstHost), Device(srcDevice), ByteCount, hStream, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return CopyNow(Device(dstDevice), Device(srcDevice), ByteCount);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return CopyLinear(Device(dstDevice), Device(srcDevice), ByteCount, hStream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                      size_t ByteCount) {
  if (const CUresult result = CheckPeers(dstContext, srcContext); result != CUDA_SUCCESS) return result;
  return entry::cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount, CUstream hStream) {
  if (const CUresult result = CheckPeers(dstContext, srcContext); result != CUDA_SUCCESS) return result;
  return entry::cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
                            CUstream hStream) {
  return CopyBatch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream) {
  return CopyBatch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, nullptr, hStream);
}

}  // namespace entry
}  // namespace tally::client_shim
