// CUDA manual: Library Management. What the runtime of CUDA 12.4 and newer loads its code with; a library needs no
// context.
#include <utility>

#include "client-shim/entry/lookup.h"
#include "client-shim/state/images_upload.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

uint64_t Word(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

CUresult Load(CUlibrary* library, OutgoingImage image, const JitOptions& options) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  uint64_t handle = 0;
  const CUresult result = LoadImage(call.channel, shm::Op::kLoadLibrary, std::move(image), options, &handle);
  if (result == CUDA_SUCCESS) *library = reinterpret_cast<CUlibrary>(handle);
  return result;
}

}  // namespace

// Library options: BINARY_IS_PRESERVED promises that the caller keeps its bytes, which the executor's copy does not
// need; HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE is about cuLibraryGetUnifiedFunction, which is refused.
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions, void** jitOptionsValues,
                           unsigned int numJitOptions, CUlibraryOption* libraryOptions, void**,
                           unsigned int numLibraryOptions) {
  if (library == nullptr || code == nullptr || (numLibraryOptions != 0 && libraryOptions == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  JitOptions jit;
  if (const CUresult result = jit.Parse(numJitOptions, jitOptions, jitOptionsValues); result != CUDA_SUCCESS)
    return result;
  OutgoingImage image;
  if (const CUresult result = DescribeImage(code, &image); result != CUDA_SUCCESS) return result;
  return Load(library, std::move(image), jit);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*, void**,
                               unsigned int) {
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  JitOptions jit;
  if (const CUresult result = jit.Parse(numJitOptions, jitOptions, jitOptionsValues); result != CUDA_SUCCESS)
    return result;
  OutgoingImage image;
  if (const CUresult result = ReadImageFile(fileName, &image); result != CUDA_SUCCESS) return result;
  return Load(library, std::move(image), jit);
}

CUresult cuLibraryUnload(CUlibrary library) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  call.process->kernels.RemoveOwner(Word(library));
  for (const Allocation& global : call.process->addresses.RemoveOwner(Word(library)))
    ReleaseAllocation(call.process, global);
  return call.channel->PostStruct(shm::Op::kUnloadLibrary, Word(library));
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = nullptr;
  const CUresult result = LookUpKernel(call, shm::Op::kGetKernel, Word(library), name, &kernel);
  if (result == CUDA_SUCCESS) *pKernel = reinterpret_cast<CUkernel>(kernel->handle);
  return result;
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kLibraryModule, shm::GetByName{Word(library), 0, 0});
  if (reply.result == CUDA_SUCCESS) *pMod = reinterpret_cast<CUmodule>(reply.Read<uint64_t>());
  return reply.result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return LookUpGlobal(call, Word(library), name, dptr, bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return LookUpGlobal(call, Word(library), name, dptr, bytes, true);
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<ListedKernel> kernels;
  const CUresult result = ListKernels(call, Word(lib), &kernels);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned int>(kernels.size());
  return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (kernels == nullptr && numKernels != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<ListedKernel> listed;
  if (const CUresult result = ListKernels(call, Word(lib), &listed); result != CUDA_SUCCESS) return result;
  for (unsigned int i = 0; i < numKernels && i < listed.size(); ++i)
    kernels[i] = reinterpret_cast<CUkernel>(listed[i].handle);
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
