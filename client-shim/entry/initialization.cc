// CUDA manual: Initialization, Version Management, Profiler Control, Coredump Attributes, Error Log Management.
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "client-shim/transport/session.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {

CUresult cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = Process::Start(); result != CUDA_SUCCESS) return result;
  return CurrentSession()->sticky_error();
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Asked before cuInit, when nothing is known yet: the version this shim's table was made from.
  const Process* process = CurrentProcess();
  *driverVersion = process != nullptr && process->driver_version() != 0 ? process->driver_version() : CUDA_VERSION;
  return CUDA_SUCCESS;
}

// There is no profiler to start: libraries that call these around a region of interest run on.
CUresult cuProfilerInitialize(const char*, const char*, CUoutput_mode) { return CUDA_SUCCESS; }
CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

// Core dumps of the GPU are the executor's: here none is ever enabled.
CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  if (value == nullptr || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attrib) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      if (*size < sizeof(bool)) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<bool*>(value) = false;
      *size = sizeof(bool);
      return CUDA_SUCCESS;
    default:
      return RefuseUse("cuCoredumpGetAttribute: file and pipe names");
  }
}
CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return entry::cuCoredumpGetAttribute(attrib, value, size);
}

// The driver's error log. The executor's driver writes one for itself; the client's is always empty.
CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  if (iterator_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = 0;
  return CUDA_SUCCESS;
}
CUresult cuLogsDumpToFile(CUlogIterator*, const char* pathToFile, unsigned int flags) {
  return pathToFile == nullptr || flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuLogsDumpToMemory(CUlogIterator*, char* buffer, size_t* size, unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (*size != 0) buffer[0] = '\0';
  *size = 0;
  return CUDA_SUCCESS;
}
CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void*, CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Never called, as there is never an entry.
  if (callback_out != nullptr) *callback_out = reinterpret_cast<CUlogsCallbackHandle>(callbackFunc);
  return CUDA_SUCCESS;
}
CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return callback == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
