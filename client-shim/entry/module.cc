// CUDA manual: Module Management (without the linker, which is in link.cc).
#include <cstring>
#include <utility>

#include "client-shim/entry/lookup.h"
#include "client-shim/state/images_upload.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

uint64_t Word(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

CUresult Load(CUmodule* module, OutgoingImage image, const JitOptions& options) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t handle = 0;
  const CUresult result = LoadImage(call.channel, shm::Op::kLoadModule, std::move(image), options, &handle);
  if (result == CUDA_SUCCESS) *module = reinterpret_cast<CUmodule>(handle);
  return result;
}

}  // namespace

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  OutgoingImage image;
  if (const CUresult result = ReadImageFile(fname, &image); result != CUDA_SUCCESS) return result;
  return Load(module, std::move(image), JitOptions());
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions, CUjit_option* options,
                            void** optionValues) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  JitOptions jit;
  if (const CUresult result = jit.Parse(numOptions, options, optionValues); result != CUDA_SUCCESS) return result;
  OutgoingImage outgoing;
  if (const CUresult result = DescribeImage(image, &outgoing); result != CUDA_SUCCESS) return result;
  return Load(module, std::move(outgoing), jit);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return entry::cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return entry::cuModuleLoadDataEx(module, fatCubin, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule hmod) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (hmod == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  call.process->kernels.RemoveOwner(Word(hmod));
  for (const Allocation& global : call.process->addresses.RemoveOwner(Word(hmod)))
    ReleaseAllocation(call.process, global);
  return call.channel->PostStruct(shm::Op::kUnloadModule, Word(hmod));
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Eager would send every image of every library at the first call.
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = nullptr;
  const CUresult result = LookUpKernel(call, shm::Op::kGetFunction, Word(hmod), name, &kernel);
  if (result == CUDA_SUCCESS) *hfunc = reinterpret_cast<CUfunction>(kernel->handle);
  return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return LookUpGlobal(call, Word(hmod), name, dptr, bytes);
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<ListedKernel> kernels;
  const CUresult result = ListKernels(call, Word(mod), &kernels);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned int>(kernels.size());
  return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (functions == nullptr && numFunctions != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<ListedKernel> kernels;
  if (const CUresult result = ListKernels(call, Word(mod), &kernels); result != CUDA_SUCCESS) return result;
  for (unsigned int i = 0; i < numFunctions && i < kernels.size(); ++i)
    functions[i] = reinterpret_cast<CUfunction>(kernels[i].handle);
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
