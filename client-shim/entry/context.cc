// CUDA manual: Context Management and Peer Context Memory Access. Which context is current is the client's own
// business.
#include <cstring>
#include <mutex>

#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_sharing_abi.h"

namespace tally::client_shim::entry {
namespace {

constexpr unsigned kCreateFlags = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                                  CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS;

// Index of `handle`, or of the current context when it is null.
CUresult ContextOrCurrent(CUcontext handle, Process** process, uint32_t* index) {
  *process = CurrentProcess();
  if (*process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *index = handle == nullptr ? t_thread.context : (*process)->contexts.Find(handle);
  if (*index == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  return (*process)->contexts.IsActive(*index) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// An event and all work of a context.
CUresult PostContextEvent(shm::Op op, CUcontext context, CUevent event) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(context, &process, &index); result != CUDA_SUCCESS) return result;
  Channel* channel = nullptr;
  if (const CUresult result = CurrentChannel(&channel); result != CUDA_SUCCESS) return result;
  const auto handle = reinterpret_cast<uint64_t>(event);
  Event* known = process->events.Find(handle);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = process->captures.CheckSynchronizeContext(index); result != CUDA_SUCCESS) return result;
  if (op == shm::Op::kRecordContextEvent) known->ForgetRecording();
  std::byte* room = channel->Begin(op, sizeof(handle));
  if (room == nullptr) return channel->failure();
  std::memcpy(room, &handle, sizeof(handle));
  channel->SetContext(index);
  channel->Post();
  return CUDA_SUCCESS;
}

CUresult Push(uint32_t index) {
  if (t_thread.context == shm::kNoContext && t_thread.below == nullptr) {
    t_thread.context = index;
    return CUDA_SUCCESS;
  }
  if (t_thread.below == nullptr) {
    t_thread.below = new ContextStack{};
    WatchThreadEnd();
  }
  if (t_thread.below->depth == kMaxContextDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  if (t_thread.context != shm::kNoContext) t_thread.below->context[t_thread.below->depth++] = t_thread.context;
  t_thread.context = index;
  return CUDA_SUCCESS;
}

void Pop() {
  ContextStack* below = t_thread.below;
  t_thread.context = below != nullptr && below->depth != 0 ? below->context[--below->depth] : shm::kNoContext;
}

CUresult Create(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (pctx == nullptr || (flags & ~kCreateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process->IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Contexts& contexts = call.process->contexts;
  const std::lock_guard lock(contexts.mutex());
  const uint32_t index = contexts.FreeIndex();
  if (index == shm::kNoContext) return CUDA_ERROR_OUT_OF_MEMORY;
  const shm::OpenContext open{index, static_cast<uint32_t>(call.process->server_ordinal(dev)), flags, 0};
  if (const Reply reply = call.channel->CallStruct(shm::Op::kOpenContext, open); reply.result != CUDA_SUCCESS)
    return reply.result;
  Context& context = contexts[index];
  context.device = dev;
  context.flags = flags;
  context.num_attached = 1;
  context.generation = static_cast<uint8_t>(context.generation + 1);
  contexts.Activate(index);
  *pctx = contexts.Handle(index);
  return Push(index);
}

}  // namespace

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) { return Create(pctx, flags, dev); }

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags, CUdevice dev) {
  if (numParams != 0) return RefuseUse("cuCtxCreate_v3: execution affinity");
  return Create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags, CUdevice dev) {
  if (ctxCreateParams != nullptr &&
      (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != nullptr))
    return RefuseUse("cuCtxCreate_v4: execution affinity and graphics contexts");
  return Create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  Contexts& contexts = call.process->contexts;
  const uint32_t index = contexts.Find(ctx);
  if (index == shm::kNoContext || index < shm::kMaxDevices) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(contexts.mutex());
  if (!contexts.IsActive(index)) return CUDA_ERROR_INVALID_CONTEXT;
  ForgetContext(call.process, index);
  contexts[index].is_active = false;
  if (t_thread.context == index) Pop();
  return call.channel->CallStruct(shm::Op::kCloseContext, shm::CloseContext{index, 0}).result;
}
CUresult cuCtxDestroy(CUcontext ctx) { return entry::cuCtxDestroy_v2(ctx); }

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextLimits& limits = call.process->contexts[t_thread.context].limits;
  if (const std::optional<size_t> known = limits.Find(limit)) {
    *pvalue = *known;
    return CUDA_SUCCESS;
  }
  const uint64_t num_changes = limits.num_changes();
  const CUresult result = wire::cuCtxGetLimit(pvalue, limit);
  if (result == CUDA_SUCCESS) limits.Keep(limit, *pvalue, num_changes);
  return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  ContextLimits& limits = call.process->contexts[t_thread.context].limits;
  const CUresult result = wire::cuCtxSetLimit(limit, value);
  limits.Forget();  // whatever came of it
  return result;
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(nullptr, &process, &index); result != CUDA_SUCCESS) return result;
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(process->contexts.mutex());
  ++process->contexts[index].num_attached;
  *pctx = process->contexts.Handle(index);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(ctx, &process, &index); result != CUDA_SUCCESS) return result;
  {
    const std::lock_guard lock(process->contexts.mutex());
    Context& context = process->contexts[index];
    if (context.num_attached > 1 || index < shm::kMaxDevices) {
      if (context.num_attached != 0) --context.num_attached;
      return CUDA_SUCCESS;
    }
  }
  return entry::cuCtxDestroy_v2(process->contexts.Handle(index));
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = t_thread.context == shm::kNoContext ? nullptr : process->contexts.Handle(t_thread.context);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (ctx == nullptr) {
    Pop();
    return CUDA_SUCCESS;
  }
  const uint32_t index = process->contexts.FindOrPrimary(ctx);
  if (index == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  t_thread.context = index;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const uint32_t index = process->contexts.Find(ctx);
  return index == shm::kNoContext ? CUDA_ERROR_INVALID_CONTEXT : Push(index);
}
CUresult cuCtxPushCurrent(CUcontext ctx) { return entry::cuCtxPushCurrent_v2(ctx); }

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (t_thread.context == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = process->contexts.Handle(t_thread.context);
  Pop();
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* pctx) { return entry::cuCtxPopCurrent_v2(pctx); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(ctx, &process, &index); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = process->contexts[index].device;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) { return entry::cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetFlags(unsigned int* flags) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(nullptr, &process, &index); result != CUDA_SUCCESS) return result;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = process->contexts[index].flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(nullptr, &process, &index); result != CUDA_SUCCESS) return result;
  if ((flags & ~kCreateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  process->contexts[index].flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(ctx, &process, &index); result != CUDA_SUCCESS) return result;
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ctxId = (uint64_t{process->contexts[index].generation} << 32) + index + 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(ctx, &process, &index); result != CUDA_SUCCESS) return result;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(nullptr, &process, &index); result != CUDA_SUCCESS) return result;
  const shm::DeviceDescription& device = process->device(process->contexts[index].device);
  if (leastPriority != nullptr) *leastPriority = device.lowest_stream_priority;
  if (greatestPriority != nullptr) *greatestPriority = device.highest_stream_priority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;  // since Volta the only one
  return CUDA_SUCCESS;
}
CUresult cuCtxSetSharedMemConfig(CUsharedconfig) { return CUDA_SUCCESS; }  // ignored since Volta

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType) {
  if (pExecAffinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(ctx, &process, &index); result != CUDA_SUCCESS) return result;
  Channel* channel = nullptr;
  if (const CUresult result = CurrentChannel(&channel); result != CUDA_SUCCESS) return result;
  if (const CUresult result = process->captures.CheckSynchronizeContext(index); result != CUDA_SUCCESS) return result;
  if (channel->WasFoundIdle(Channel::kAllStreams, index)) return FinishWait(channel);
  if (channel->Begin(shm::Op::kSynchronizeContext, 0) == nullptr) return channel->failure();
  channel->SetContext(index);
  const Reply reply = channel->Call(WaitForDevice(*process, index));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  NoteContextComplete(process, index, reply.sequence_number);
  channel->NoteIdle(Channel::kAllStreams, index);
  return FinishWait(channel);
}
CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return PostContextEvent(shm::Op::kRecordContextEvent, hCtx, hEvent);
}
CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return PostContextEvent(shm::Op::kWaitContextEvent, hCtx, hEvent);
}
CUresult cuCtxSynchronize() { return entry::cuCtxSynchronize_v2(nullptr); }

// The executor switches access on between its own contexts, which all programs share, and never off. What this program
// switched on is its own book, so that it gets the native answers.
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(nullptr, &process, &index); result != CUDA_SUCCESS) return result;
  const uint32_t peer = process->contexts.Find(peerContext);
  if (peer == shm::kNoContext || peer == index) return CUDA_ERROR_INVALID_CONTEXT;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  int can_access = 0;
  const CUdevice from = process->contexts[index].device;
  const CUdevice to = process->contexts[peer].device;
  entry::cuDeviceCanAccessPeer(&can_access, from, to);
  if (can_access == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  Channel* channel = nullptr;
  if (const CUresult result = CurrentChannel(&channel); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(process->contexts.mutex());
  if (process->contexts.peers().contains({index, peer})) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  const shm::EnablePeer request{static_cast<uint32_t>(process->server_ordinal(from)),
                                static_cast<uint32_t>(process->server_ordinal(to))};
  if (const Reply reply = channel->CallStruct(shm::Op::kEnablePeer, request); reply.result != CUDA_SUCCESS)
    return reply.result;
  process->contexts.peers().emplace(index, peer);
  return CUDA_SUCCESS;
}
CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = ContextOrCurrent(nullptr, &process, &index); result != CUDA_SUCCESS) return result;
  const uint32_t peer = process->contexts.Find(peerContext);
  if (peer == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(process->contexts.mutex());
  return process->contexts.peers().erase({index, peer}) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace tally::client_shim::entry
