// Streams, host functions, stream memory operations.
#include "sim-driver/api/stream.h"

#include <algorithm>

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/stream_memory.h"

using namespace tally::sim_driver;

namespace {

constexpr int kGreatestPriority = -5;

void Create(CUstream* out, unsigned flags, int priority) {
  const ContextPtr context = EnterContext();
  RequireOut(out);
  Require((flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) == 0, CUDA_ERROR_INVALID_VALUE);
  *out = CreateStream(context, flags, std::clamp(priority, kGreatestPriority, 0))->handle;
}

void IssueMemoryOperations(CUstream stream, std::vector<CUstreamBatchMemOpParams> operations, unsigned flags) {
  const StreamUse use = UseStream(stream);
  Require(flags == 0, CUDA_ERROR_INVALID_VALUE);
  for (const CUstreamBatchMemOpParams& operation : operations) CheckStreamMemoryOperation(operation);
  if (operations.empty()) return;
  Issue(use, MemOpsOperation{std::move(operations), flags, use.context->handle()});
}

CUstreamBatchMemOpParams WaitOperation(CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
                                       unsigned flags) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = type;
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return operation;
}

CUstreamBatchMemOpParams WriteOperation(CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
                                        unsigned flags) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = type;
  operation.writeValue.address = address;
  operation.writeValue.value64 = value;
  operation.writeValue.flags = flags;
  return operation;
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  TALLY_ENTRY({ Create(phStream, Flags, 0); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  TALLY_ENTRY({ Create(phStream, flags, priority); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) {
  TALLY_ENTRY({
    RequireInitialized();
    DestroyStream(hStream);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream hStream) { return cuStreamDestroy_v2(hStream); }

TALLY_EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream hStream) {
  TALLY_ENTRY({ SynchronizeStream(UseStream(hStream)); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamQuery(CUstream hStream) {
  TALLY_ENTRY({ return QueryStream(UseStream(hStream)); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetPriority(CUstream hStream, int* priority) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(priority);
    *priority = use.stream->priority;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(flags);
    *flags = use.stream->flags;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(streamId);
    *streamId = use.stream->id;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(device);
    *device = use.context->device().ordinal();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(pctx);
    *pctx = use.context->handle();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(pCtx);
    RequireOut(pGreenCtx);
    *pCtx = use.context->handle();
    *pGreenCtx = nullptr;  // green contexts do not exist here
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(value);
    switch (static_cast<int>(attr)) {
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value->syncPolicy = use.stream->synchronization_policy;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = use.stream->priority;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value->accessPolicyWindow = {};
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        value->memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        value->memSyncDomainMap = {};
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                                                   const CUstreamAttrValue* value) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(value);
    switch (static_cast<int>(attr)) {
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        use.stream->synchronization_policy = value->syncPolicy;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return CUDA_SUCCESS;  // hints
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamCopyAttributes(CUstream dst, CUstream src) {
  TALLY_ENTRY({
    const StreamUse to = UseStream(dst);
    const StreamUse from = UseStream(src);
    to.stream->synchronization_policy = from.stream->synchronization_policy;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    Require(fn != nullptr, CUDA_ERROR_INVALID_VALUE);
    Issue(use, HostOperation{fn, userData});
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                                  unsigned int flags) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    Require(callback != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    RefuseWhileCapturing(use.stream);
    Issue(use, CallbackOperation{callback, hStream, userData});
  });
}

#define DEFINE_STREAM_WORD(bits)                                                                                    \
  TALLY_EXPORT CUresult CUDAAPI cuStreamWaitValue##bits##_v2(CUstream stream, CUdeviceptr addr,                     \
                                                             cuuint##bits##_t value, unsigned int flags) {          \
    TALLY_ENTRY({                                                                                                   \
      IssueMemoryOperations(stream, {WaitOperation(CU_STREAM_MEM_OP_WAIT_VALUE_##bits, addr, value, flags)}, 0);    \
    });                                                                                                             \
  }                                                                                                                 \
  TALLY_EXPORT CUresult CUDAAPI cuStreamWriteValue##bits##_v2(CUstream stream, CUdeviceptr addr,                    \
                                                              cuuint##bits##_t value, unsigned int flags) {         \
    TALLY_ENTRY({                                                                                                   \
      IssueMemoryOperations(stream, {WriteOperation(CU_STREAM_MEM_OP_WRITE_VALUE_##bits, addr, value, flags)}, 0);  \
    });                                                                                                             \
  }                                                                                                                 \
  TALLY_EXPORT CUresult CUDAAPI cuStreamWaitValue##bits(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value,  \
                                                        unsigned int flags) {                                       \
    return cuStreamWaitValue##bits##_v2(stream, addr, value, flags);                                                \
  }                                                                                                                 \
  TALLY_EXPORT CUresult CUDAAPI cuStreamWriteValue##bits(CUstream stream, CUdeviceptr addr, cuuint##bits##_t value, \
                                                         unsigned int flags) {                                      \
    return cuStreamWriteValue##bits##_v2(stream, addr, value, flags);                                               \
  }

DEFINE_STREAM_WORD(32)
DEFINE_STREAM_WORD(64)

TALLY_EXPORT CUresult CUDAAPI cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                                    CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  TALLY_ENTRY({
    constexpr unsigned kMaxOperations = 256;
    UseStream(stream);
    Require(count <= kMaxOperations && (count == 0 || paramArray != nullptr), CUDA_ERROR_INVALID_VALUE);
    IssueMemoryOperations(stream, {paramArray, paramArray + count}, flags);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamBatchMemOp(CUstream stream, unsigned int count,
                                                 CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}
