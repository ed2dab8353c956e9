// CUDA manual: Execution Control (attributes of functions) and the kernel part of Library Management. Answered from
// what the look-up of the kernel brought, as libraries ask all 16 attributes of every kernel.
#include "client-shim/entry/guard.h"
#include "client-shim/entry/lookup.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

Kernel* FindKernel(const void* handle) {
  Process* process = CurrentProcess();
  return process != nullptr ? process->kernels.Find(reinterpret_cast<uint64_t>(handle)) : nullptr;
}

CUresult ParameterInfo(const void* handle, size_t index, size_t* offset, size_t* size) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Kernel* kernel = FindKernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (offset == nullptr || index >= kernel->num_parameters) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel->layout[index].offset_bytes;
  if (size != nullptr) *size = kernel->layout[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult NameOf(const char** name, const void* handle) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = FindKernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

// Whether `attribute` already has `value`, so that setting it would change nothing.
bool IsSet(const Kernel* kernel, CUdevice device, CUfunction_attribute attribute, int value) {
  return value >= 0 && kernel->attributes.Get(device, static_cast<int>(attribute)) == value;
}

// The function behind what may be a CUkernel cast to one, in the current context.
CUresult FunctionOf(const Kernel* kernel, CUfunction* function) {
  if (shm::HandleKindOf(kernel->handle) != shm::HandleKind::kKernel) return CUDA_SUCCESS;
  return entry::cuKernelGetFunction(function, reinterpret_cast<CUkernel>(kernel->handle));
}

}  // namespace

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  Kernel* kernel = FindKernel(hfunc);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUdevice device = call.process->current_device();
  if (kernel->attributes.Find(device, attrib, pi)) return CUDA_SUCCESS;
  CUfunction function = hfunc;
  if (const CUresult result = FunctionOf(kernel, &function); result != CUDA_SUCCESS) return result;
  const CUresult result = wire::cuFuncGetAttribute(pi, attrib, function);
  if (result == CUDA_SUCCESS) call.process->kernels.KeepAttribute(kernel, device, attrib, *pi);
  return result;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  Kernel* kernel = FindKernel(hfunc);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUdevice device = call.process->current_device();
  if (IsSet(kernel, device, attrib, value)) return CUDA_SUCCESS;
  CUfunction function = hfunc;
  if (const CUresult result = FunctionOf(kernel, &function); result != CUDA_SUCCESS) return result;
  const CUresult result = wire::cuFuncSetAttribute(function, attrib, value);
  if (result != CUDA_SUCCESS) return result;
  call.process->kernels.KeepAttribute(kernel, device, attrib, value);
  call.process->occupancy.Forget();
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig) {
  return FindKernel(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;  // ignored since Volta
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = FindKernel(hfunc);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (shm::HandleKindOf(kernel->owner) == shm::HandleKind::kLibrary)
    return entry::cuLibraryGetModule(hmod, reinterpret_cast<CUlibrary>(kernel->owner));
  *hmod = reinterpret_cast<CUmodule>(kernel->owner);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) { return NameOf(name, hfunc); }
CUresult cuKernelGetName(const char** name, CUkernel hfunc) { return NameOf(name, hfunc); }

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return ParameterInfo(func, paramIndex, paramOffset, paramSize);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return ParameterInfo(kernel, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* known = FindKernel(kernel);
  if (known == nullptr || shm::HandleKindOf(known->handle) != shm::HandleKind::kKernel)
    return CUDA_ERROR_INVALID_HANDLE;
  if (const uint64_t kept = known->FunctionIn(t_thread.context); kept != 0) {
    *pFunc = reinterpret_cast<CUfunction>(kept);
    return CUDA_SUCCESS;
  }
  const Reply reply = call.channel->CallStruct(shm::Op::kKernelFunction, shm::GetByName{known->handle, 0, 0});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  Kernel* function = call.process->kernels.File(*call.process, reply, known->owner, known->name);
  if (function == nullptr) return CUDA_ERROR_UNKNOWN;
  function->kernel_of_function.store(known->handle, std::memory_order_release);
  known->KeepFunction(t_thread.context, function->handle);
  *pFunc = reinterpret_cast<CUfunction>(function->handle);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* known = FindKernel(kernel);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = reinterpret_cast<CUlibrary>(known->owner);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!process->IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Kernel* known = FindKernel(kernel);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (known->attributes.Find(dev, attrib, pi)) return CUDA_SUCCESS;
  const CUresult result = wire::cuKernelGetAttribute(pi, attrib, kernel, dev);
  if (result == CUDA_SUCCESS) known->attributes.Keep(dev, attrib, *pi);
  return result;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!process->IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Kernel* known = FindKernel(kernel);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (IsSet(known, dev, attrib, val)) return CUDA_SUCCESS;
  const CUresult result = wire::cuKernelSetAttribute(attrib, val, kernel, dev);
  if (result != CUDA_SUCCESS) return result;
  process->kernels.KeepAttribute(known, dev, attrib, val);
  process->occupancy.Forget();
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
