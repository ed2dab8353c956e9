#include "server/executor/session/client_names.h"

namespace tally::server {

CUresult ClientNames::Find(shm::HandleKind, uint64_t handle, CUfunction* out) {
  const bool is_kernel = shm::HandleKindOf(handle) == shm::HandleKind::kKernel;
  auto* kernel = static_cast<Kernel*>(
      session().handles(is_kernel ? shm::HandleKind::kKernel : shm::HandleKind::kFunction).Find(handle));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel->function != nullptr) {
    *out = kernel->function;
    return CUDA_SUCCESS;
  }
  if (kernel->function_of_kernel == nullptr) {
    // Same real context for every client context of a device; with several devices each has its own function.
    CUfunction function = nullptr;
    if (const CUresult r = session().driver.cuKernelGetFunction(&function, kernel->kernel); r != CUDA_SUCCESS) return r;
    if (session().core.devices->count() > 1) {
      *out = function;
      return CUDA_SUCCESS;
    }
    kernel->function_of_kernel = function;
  }
  *out = kernel->function_of_kernel;
  return CUDA_SUCCESS;
}

CUresult ClientNames::Find(shm::HandleKind, uint64_t handle, CUkernel* out) {
  auto* kernel = static_cast<Kernel*>(session().handles(shm::HandleKind::kKernel).Find(handle));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = kernel->kernel;
  return CUDA_SUCCESS;
}

CUresult ClientNames::Find(shm::HandleKind, uint64_t handle, CUmodule* out) {
  auto* image = static_cast<LoadedImage*>(session().handles(shm::HandleKind::kModule).Find(handle));
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = image->module;
  return CUDA_SUCCESS;
}

CUresult ClientNames::Find(shm::HandleKind, uint64_t handle, CUlibrary* out) {
  auto* image = static_cast<LoadedImage*>(session().handles(shm::HandleKind::kLibrary).Find(handle));
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = image->library;
  return CUDA_SUCCESS;
}

uint64_t ClientNames::NameOf(shm::HandleKind kind, void* value) {
  const uint64_t handle = session().handles(kind).Add(value, served_.context_index());
  if (handle == 0) served_.Malformed("more handles of one kind than a session may have");
  return handle;
}

CUresult ClientNames::FindStream(uint64_t handle, Stream** out) {
  if (handle > shm::kPerThreadStream) {
    if (const CUresult r = Find(shm::HandleKind::kStream, handle, out); r != CUDA_SUCCESS) return r;
    // The program may name a stream of one device while another is current.
    return served_.EnterDevice((*out)->context->device());
  }
  ClientContext* const context = served_.context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool is_per_thread = handle == shm::kPerThreadStream;
  std::optional<VariantRegistry::ContextCall> making;
  if (!(is_per_thread ? context->HasPerThread(channel_index_) : context->HasLegacy())) {
    making.emplace(session().core.variants.get(), session().is_high_priority.load(std::memory_order_relaxed));
  }
  return is_per_thread ? context->PerThread(channel_index_, out) : context->Legacy(out);
}

CUresult ClientNames::ResolveStream(uint64_t handle, StreamUse use, Stream** out) {
  if (const CUresult r = FindStream(handle, out); r != CUDA_SUCCESS) return r;
  if (use == StreamUse::kNamed) return CUDA_SUCCESS;
  if (const CUresult r = (*out)->context->Order(**out); r != CUDA_SUCCESS || use == StreamUse::kLaunch) return r;
  return (*out)->Seal();
}

CUresult ClientNames::ResolveStream(uint64_t handle, StreamUse use, CUstream* out) {
  Stream* stream = nullptr;
  const CUresult result = ResolveStream(handle, use, &stream);
  if (result == CUDA_SUCCESS) *out = stream->real;
  return result;
}

}  // namespace tally::server
