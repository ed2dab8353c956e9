// CUDA manual: Stream Management (capture is in capture.cc, callbacks in callback.cc) and Stream Memory Operations.
#include <algorithm>
#include <memory>
#include <utility>

#include "client-shim/entry/copy_plan.h"
#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_stream_abi.h"

namespace tally::client_shim::entry {
namespace {

CUresult Create(CUstream* stream, unsigned int flags, int priority) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (stream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // Out of range priorities are clamped, as natively.
  const shm::DeviceDescription& device = call.process->device(call.process->current_device());
  priority = std::clamp(priority, device.highest_stream_priority, device.lowest_stream_priority);
  const Reply reply = call.channel->CallStruct(shm::Op::kCreateStream, shm::CreateStream{flags, priority});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  auto created = std::make_unique<Stream>();
  created->handle = reply.Read<uint64_t>();
  created->id = call.process->next_stream_id.fetch_add(1, std::memory_order_relaxed);
  created->context = t_thread.context;
  created->flags = flags;
  created->priority = priority;
  *stream = reinterpret_cast<CUstream>(created->handle);
  call.process->streams.Insert(std::move(created));
  return CUDA_SUCCESS;
}

// What is known of any stream, the default ones included.
CUresult Describe(CUstream stream, Stream* description) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(stream, &word); result != CUDA_SUCCESS) return result;
  if (const Stream* known = process->streams.Find(word); word > shm::kPerThreadStream && known != nullptr) {
    *description = *known;
    return CUDA_SUCCESS;
  }
  description->handle = word;
  description->context = t_thread.context;
  // The legacy stream has id 1 in the first context, and so on; per-thread streams are told apart by their channel.
  description->id = word == shm::kLegacyStream
                        ? (uint64_t{t_thread.context} + 1) << 32 | 1
                        : (uint64_t{t_thread.context} + 1) << 32 |
                              (t_thread.channel != nullptr ? uint64_t{t_thread.channel->index()} + 2 : 2);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) { return Create(phStream, Flags, 0); }
CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return Create(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  const auto word = reinterpret_cast<uint64_t>(hStream);
  if (word <= shm::kPerThreadStream) return CUDA_ERROR_INVALID_HANDLE;
  if (call.process->streams.Remove(word) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  call.process->captures.Forget(word);
  return call.channel->PostStruct(shm::Op::kDestroyStream, word);
}
CUresult cuStreamDestroy(CUstream hStream) { return entry::cuStreamDestroy_v2(hStream); }

CUresult cuStreamSynchronize(CUstream hStream) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(hStream, &word); result != CUDA_SUCCESS) return result;
  if (call.process->captures.any()) {
    bool is_capturing = false;
    if (const CUresult result = IsStreamCapturing(call, word, &is_capturing); result != CUDA_SUCCESS) return result;
    if (is_capturing) return call.process->captures.Spoil(word), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (word == shm::kLegacyStream) {
      if (const CUresult result = call.process->captures.CheckLegacyStream(t_thread.context); result != CUDA_SUCCESS)
        return result;
    }
    if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  }
  if (IsKnownIdle(*call.process, *call.channel, word)) return FinishWait(call.channel);
  const uint32_t context = ContextOfStream(word);
  const Reply reply =
      call.channel->CallStruct(shm::Op::kSynchronizeStream, word, WaitForDevice(*call.process, context));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  NoteStreamComplete(call.process, word, reply.sequence_number);
  call.channel->NoteIdle(word, context);
  return FinishWait(call.channel);
}

CUresult cuStreamQuery(CUstream hStream) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(hStream, &word); result != CUDA_SUCCESS) return result;
  if (IsKnownIdle(*call.process, *call.channel, word)) return CUDA_SUCCESS;
  const CUresult result = wire::cuStreamQuery(hStream);
  if (result != CUDA_SUCCESS) return result;
  call.channel->NoteIdle(word, ContextOfStream(word));
  return FetchManagedVariables();
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Stream description;
  if (const CUresult result = Describe(hStream, &description); result != CUDA_SUCCESS) return result;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = description.flags;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  Stream description;
  if (const CUresult result = Describe(hStream, &description); result != CUDA_SUCCESS) return result;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = description.priority;
  return CUDA_SUCCESS;
}
CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = wire::cuStreamSetAttribute(hStream, attr, value);
  if (result != CUDA_SUCCESS || attr != CU_LAUNCH_ATTRIBUTE_PRIORITY) return result;
  // cuStreamGetPriority is answered here.
  if (Stream* known = CurrentProcess()->streams.Find(reinterpret_cast<uint64_t>(hStream)); known != nullptr)
    known->priority = value->priority;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  Stream description;
  if (const CUresult result = Describe(hStream, &description); result != CUDA_SUCCESS) return result;
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *streamId = description.id;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  Stream description;
  if (const CUresult result = Describe(hStream, &description); result != CUDA_SUCCESS) return result;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = CurrentProcess()->contexts.Handle(description.context);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return entry::cuStreamGetCtx(hStream, pCtx);
}
CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  Stream description;
  if (const CUresult result = Describe(hStream, &description); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = CurrentProcess()->contexts[description.context].device;
  return CUDA_SUCCESS;
}

// The first ABIs of these had to be enabled by a module option; their arguments are those of the second.
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return wire::cuStreamWaitValue32_v2(stream, addr, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return wire::cuStreamWaitValue64_v2(stream, addr, value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return wire::cuStreamWriteValue32_v2(stream, addr, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return wire::cuStreamWriteValue64_v2(stream, addr, value, flags);
}

}  // namespace tally::client_shim::entry
