// Primary contexts and context management.
#include "sim-driver/api/entry/entry.h"

using namespace tally::sim_driver;

namespace {

constexpr unsigned kKnownContextFlags = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                                        CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS;
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

void RequireContextFlags(unsigned flags) {
  Require((flags & ~kKnownContextFlags) == 0, CUDA_ERROR_INVALID_VALUE);
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  Require(scheduling <= CU_CTX_SCHED_YIELD || scheduling == CU_CTX_SCHED_BLOCKING_SYNC, CUDA_ERROR_INVALID_VALUE);
}

void CreateContext(CUcontext* out, unsigned flags, CUdevice dev, unsigned api_version) {
  RequireInitialized();
  RequireOut(out);
  Device& device = DeviceAt(dev);
  RequireContextFlags(flags);
  ContextPtr context = Context::Create(device, flags, /*is_primary=*/false, api_version);
  *out = context->handle();
  PushContext(std::move(context));
}

// The given context, or the current one for null.
ContextPtr ContextOrCurrent(CUcontext handle) {
  RequireInitialized();
  if (handle == nullptr) return EnterContext();
  return FindContext(handle);
}

void SynchronizeContext(const ContextPtr& context) {
  RequireSuccess(context->error());
  RefuseUnsafeCall(context);
  context->Synchronize();
  RequireSuccess(context->error());
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pctx);
    Device& device = DeviceAt(dev);
    const std::lock_guard lock(device.primary_mutex);
    if (!device.primary) device.primary = Context::Create(device, device.primary_flags, true, 3020);
    ++device.primary_references;
    *pctx = device.primary->handle();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  TALLY_ENTRY({
    Device& device = DeviceAt(dev);
    ContextPtr doomed;
    {
      const std::lock_guard lock(device.primary_mutex);
      Require(device.primary_references > 0, CUDA_ERROR_INVALID_CONTEXT);
      if (--device.primary_references == 0) doomed = std::move(device.primary);
      if (doomed) device.primary = nullptr;
    }
    if (doomed) doomed->Destroy();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev) { return cuDevicePrimaryCtxRelease_v2(dev); }

TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  TALLY_ENTRY({
    Device& device = DeviceAt(dev);
    RequireContextFlags(flags);
    const std::lock_guard lock(device.primary_mutex);
    device.primary_flags = flags;
    if (device.primary) device.primary->flags.store(flags);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  TALLY_ENTRY({
    Device& device = DeviceAt(dev);
    RequireOut(flags);
    RequireOut(active);
    const std::lock_guard lock(device.primary_mutex);
    *flags = device.primary_flags;
    *active = device.primary ? 1 : 0;
  });
}

// The context dies whatever its references; those stay, and the next Retain makes a fresh one.
TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  TALLY_ENTRY({
    Device& device = DeviceAt(dev);
    ContextPtr doomed;
    {
      const std::lock_guard lock(device.primary_mutex);
      doomed.swap(device.primary);
      device.primary_references = 0;
    }
    if (doomed) doomed->Destroy();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

TALLY_EXPORT CUresult CUDAAPI cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  TALLY_ENTRY({ CreateContext(pctx, flags, dev, 3020); });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags,
                                             CUdevice dev) {
  TALLY_ENTRY({
    Require(numParams == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    CreateContext(pctx, flags, dev, 3020);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                                             CUdevice dev) {
  TALLY_ENTRY({
    if (ctxCreateParams != nullptr) {
      Require(ctxCreateParams->numExecAffinityParams == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
      Require(ctxCreateParams->cigParams == nullptr, CUDA_ERROR_NOT_SUPPORTED);
    }
    CreateContext(pctx, flags, dev, 3020);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx) {
  TALLY_ENTRY({
    RequireInitialized();
    const ContextPtr context = FindContext(ctx);
    Require(!context->is_primary(), CUDA_ERROR_INVALID_CONTEXT);
    if (CurrentContextOrNull() == context) PopContext();
    context->Destroy();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

TALLY_EXPORT CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx) {
  TALLY_ENTRY({
    RequireInitialized();
    PushContext(FindContext(ctx));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

TALLY_EXPORT CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* pctx) {
  TALLY_ENTRY({
    RequireInitialized();
    const ContextPtr context = PopContext();
    Require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    if (pctx != nullptr) *pctx = context->handle();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxPopCurrent(CUcontext* pctx) { return cuCtxPopCurrent_v2(pctx); }

TALLY_EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx) {
  TALLY_ENTRY({
    RequireInitialized();
    SetCurrentContext(ctx == nullptr ? nullptr : FindContext(ctx));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetCurrent(CUcontext* pctx) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pctx);
    const ContextPtr context = CurrentContextOrNull();
    *pctx = context ? context->handle() : nullptr;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  TALLY_ENTRY({
    RequireInitialized();
    const ContextPtr context = CurrentContextOrNull();
    Require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    RequireOut(device);
    *device = context->device().ordinal();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  TALLY_ENTRY({
    const ContextPtr context = ContextOrCurrent(ctx);
    RequireOut(device);
    *device = context->device().ordinal();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(flags);
    *flags = context->flags.load();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireContextFlags(flags);
    context->flags.store(flags);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  TALLY_ENTRY({
    const ContextPtr context = ContextOrCurrent(ctx);
    RequireOut(ctxId);
    *ctxId = context->id();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxSynchronize() {
  TALLY_ENTRY({ SynchronizeContext(EnterContext()); });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) {
  TALLY_ENTRY({ SynchronizeContext(ContextOrCurrent(ctx)); });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    constexpr size_t kMaxStackBytes = 512 << 10;
    constexpr size_t kMaxL2Granularity = 128;
    switch (limit) {
      case CU_LIMIT_STACK_SIZE:
        Require(value <= kMaxStackBytes, CUDA_ERROR_INVALID_VALUE);
        value = (value + 15) / 16 * 16;
        break;
      case CU_LIMIT_PRINTF_FIFO_SIZE:
        Require(value != 0, CUDA_ERROR_INVALID_VALUE);
        context->printf_buffer().SetLimit(value);
        break;
      case CU_LIMIT_MALLOC_HEAP_SIZE:
        Require(value <= context->device().total_bytes(), CUDA_ERROR_OUT_OF_MEMORY);
        break;
      case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        break;
      case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        Require(value <= kMaxL2Granularity, CUDA_ERROR_INVALID_VALUE);
        break;
      default:
        Require(limit >= 0 && limit < CU_LIMIT_MAX, CUDA_ERROR_INVALID_VALUE);
        Fail(CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    context->SetLimit(limit, value);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pvalue);
    Require(limit >= 0 && limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *pvalue = context->Limit(limit);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pconfig);
    *pconfig = static_cast<CUfunc_cache>(context->cache_config.load());
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    Require(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
    context->cache_config.store(config);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pConfig);
    *pConfig = static_cast<CUsharedconfig>(context->shared_config.load());
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config) {
  TALLY_ENTRY({
    EnterContext();
    // Banks are four bytes wide on this generation; the setting has no effect natively either.
    Require(config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
            CUDA_ERROR_INVALID_VALUE);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  TALLY_ENTRY({
    const ContextPtr context = ContextOrCurrent(ctx);
    RequireOut(version);
    *version = context->api_version();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  TALLY_ENTRY({
    EnterContext();
    if (leastPriority != nullptr) *leastPriority = kLeastPriority;
    if (greatestPriority != nullptr) *greatestPriority = kGreatestPriority;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxResetPersistingL2Cache() {
  TALLY_ENTRY({ EnterContext(); });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pExecAffinity);
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  });
}

// All software devices can reach one another's memory; a kernel may once its context has asked.
TALLY_EXPORT CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    Require(Flags == 0, CUDA_ERROR_INVALID_VALUE);
    const ContextPtr peer = FindContext(peerContext);
    Require(peer->device().ordinal() != context->device().ordinal(), CUDA_ERROR_INVALID_CONTEXT);
    Require(context->memory()->SetPeer(peer->device().ordinal(), true), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    const ContextPtr peer = FindContext(peerContext);
    Require(context->memory()->SetPeer(peer->device().ordinal(), false), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  });
}

// Event of everything that the context has been given so far, and the other way round.
TALLY_EXPORT CUresult CUDAAPI cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  TALLY_ENTRY({
    const ContextPtr context = ContextOrCurrent(hCtx);
    RequireSuccess(context->error());
    const EventPtr event = FindEvent(hEvent);
    Require(event->context.lock() == context, CUDA_ERROR_INVALID_HANDLE);
    RefuseUnsafeCall(context);
    auto marker = std::make_shared<Task>();
    const auto lock = Timeline::Get().Lock();
    std::vector<TaskPtr> tails;
    context->AppendTailsLocked(tails, /*blocking_only=*/false);
    Timeline::Get().SubmitLocked(marker, tails);
    event->recorded = std::move(marker);
    event->is_captured.store(false);
  });
}
