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

CUdevice Device() { return t_thread.context != shm::kNoContext ? CurrentProcess()->current_device() : 0; }

// A CUkernel that is used on another device than the one its description is of.
bool IsElsewhere(const Kernel& kernel) {
  return shm::HandleKindOf(kernel.handle) == shm::HandleKind::kKernel && Device() != 0;
}

// Whether `attribute` already has `value`, so that setting it would change nothing.
bool IsSet(const Kernel* kernel, CUfunction_attribute attribute, int value) {
  return value >= 0 && kernel->Attribute(static_cast<int>(attribute)) == value;
}

}  // namespace

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Kernel* kernel = FindKernel(hfunc);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (IsElsewhere(*kernel)) return entry::cuKernelGetAttribute(pi, attrib, reinterpret_cast<CUkernel>(hfunc), Device());
  const auto id = static_cast<uint32_t>(attrib);
  if (id < shm::kNumKernelAttributes && (kernel->attribute_valid.load(std::memory_order_acquire) >> id & 1) != 0) {
    *pi = kernel->attribute[id].load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
  }
  if (shm::HandleKindOf(kernel->handle) == shm::HandleKind::kKernel) {
    CUfunction function = nullptr;
    if (const CUresult result = entry::cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(hfunc));
        result != CUDA_SUCCESS)
      return result;
    return wire::cuFuncGetAttribute(pi, attrib, function);
  }
  return wire::cuFuncGetAttribute(pi, attrib, hfunc);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Kernel* kernel = FindKernel(hfunc);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (IsElsewhere(*kernel))
    return entry::cuKernelSetAttribute(attrib, value, reinterpret_cast<CUkernel>(hfunc), Device());
  if (IsSet(kernel, attrib, value)) return CUDA_SUCCESS;
  CUfunction function = hfunc;
  if (shm::HandleKindOf(kernel->handle) == shm::HandleKind::kKernel) {
    if (const CUresult result = entry::cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(hfunc));
        result != CUDA_SUCCESS)
      return result;
  }
  const CUresult result = wire::cuFuncSetAttribute(function, attrib, value);
  if (result != CUDA_SUCCESS) return result;
  process->kernels.SetAttribute(kernel, static_cast<int>(attrib), value);
  process->occupancy.Forget();
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
  if (known->function_context.load(std::memory_order_acquire) == t_thread.context) {
    *pFunc = reinterpret_cast<CUfunction>(known->twin.load(std::memory_order_relaxed));
    return CUDA_SUCCESS;
  }
  const Reply reply = call.lane->CallStruct(shm::Op::kKernelFunction, shm::GetByName{known->handle, 0, 0});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  Kernel* function = call.process->kernels.File(reply, known->owner, known->name);
  if (function == nullptr) return CUDA_ERROR_UNKNOWN;
  // What is set through the function is the CUkernel's attribute on this device only.
  if (Device() == 0) function->twin.store(known->handle, std::memory_order_relaxed);
  known->twin.store(function->handle, std::memory_order_relaxed);
  known->function_context.store(t_thread.context, std::memory_order_release);
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
  const auto id = static_cast<uint32_t>(attrib);
  // The description is of the first device; another kind of GPU beside it may have other machine code.
  if (dev == 0 && id < shm::kNumKernelAttributes &&
      (known->attribute_valid.load(std::memory_order_acquire) >> id & 1) != 0) {
    *pi = known->attribute[id].load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
  }
  std::atomic<int32_t>* memo = known->OnOtherDevice(dev, id);
  if (memo != nullptr && memo->load(std::memory_order_relaxed) != OtherDevices::kUnknown) {
    *pi = memo->load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
  }
  const CUresult result = wire::cuKernelGetAttribute(pi, attrib, kernel, dev);
  if (result == CUDA_SUCCESS && memo != nullptr) memo->store(*pi, std::memory_order_relaxed);
  return result;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!process->IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Kernel* known = FindKernel(kernel);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (dev == 0 && IsSet(known, attrib, val)) return CUDA_SUCCESS;
  const CUresult result = wire::cuKernelSetAttribute(attrib, val, kernel, dev);
  if (result != CUDA_SUCCESS) return result;
  if (dev == 0) process->kernels.SetAttribute(known, static_cast<int>(attrib), val);
  if (std::atomic<int32_t>* memo = known->OnOtherDevice(dev, static_cast<uint32_t>(attrib)); memo != nullptr)
    memo->store(val, std::memory_order_relaxed);
  process->occupancy.Forget();
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
