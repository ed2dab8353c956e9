// CUDA manual: Primary Context Management. The runtime uses nothing else.
#include <mutex>

#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

constexpr unsigned kContextFlags = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX |
                                   CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS;

CUresult FindPrimary(CUdevice device, Process** process, uint32_t* index) {
  *process = CurrentProcess();
  if (*process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!(*process)->IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *index = static_cast<uint32_t>((*process)->server_ordinal(device));
  return CUDA_SUCCESS;
}

CUresult Close(Process* process, uint32_t index, bool is_reset) {
  Channel* channel = nullptr;
  if (const CUresult result = CurrentChannel(&channel); result != CUDA_SUCCESS) return result;
  ForgetContext(process, index);
  const Reply reply = channel->CallStruct(shm::Op::kCloseContext, shm::CloseContext{index, is_reset ? 1u : 0u});
  return reply.result;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = FindPrimary(dev, &process, &index); result != CUDA_SUCCESS) return result;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Channel* channel = nullptr;
  if (const CUresult result = CurrentChannel(&channel); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(process->contexts.mutex());
  Context& context = process->contexts[index];
  if (!context.is_active) {
    const shm::OpenContext open{index, index, context.flags.load(), 0};
    if (const Reply reply = channel->CallStruct(shm::Op::kOpenContext, open); reply.result != CUDA_SUCCESS)
      return reply.result;
    context.num_retained = 0;
    process->contexts.Activate(index);
  }
  ++context.num_retained;
  *pctx = Contexts::Primary(static_cast<int>(index));
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = FindPrimary(dev, &process, &index); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(process->contexts.mutex());
  Context& context = process->contexts[index];
  if (context.num_retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.num_retained != 0) return CUDA_SUCCESS;
  context.is_active = false;
  return Close(process, index, false);
}
CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return entry::cuDevicePrimaryCtxRelease_v2(dev); }

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = FindPrimary(dev, &process, &index); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(process->contexts.mutex());
  Context& context = process->contexts[index];
  if (!context.is_active) return CUDA_SUCCESS;
  context.is_active = false;
  context.num_retained = 0;
  return Close(process, index, true);
}
CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return entry::cuDevicePrimaryCtxReset_v2(dev); }

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = FindPrimary(dev, &process, &index); result != CUDA_SUCCESS) return result;
  if ((flags & ~kContextFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  process->contexts[index].flags = flags;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return entry::cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  Process* process = nullptr;
  uint32_t index = 0;
  if (const CUresult result = FindPrimary(dev, &process, &index); result != CUDA_SUCCESS) return result;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context& context = process->contexts[index];
  *flags = context.flags;
  *active = context.is_active ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
