// Modules, libraries, kernels, functions and their attributes.
#include "sim-driver/api/module.h"

#include <algorithm>
#include <cstdint>

#include "sim-driver/api/driver_waits.h"
#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/image.h"
#include "sim-driver/api/occupancy.h"

using namespace tally::sim_driver;

namespace {

constexpr int kPtxVersion = 90;

void Load(CUmodule* out, const void* image, JitOptions& options) {
  const ContextPtr context = EnterContext();
  RequireOut(out);
  AwaitContextIfAsked(*context);
  *out = LoadModule(context, LoadImage(image, options), nullptr)->handle;
}

// A file holds PTX text or a fat binary.
std::shared_ptr<const Program> LoadFile(const char* path, JitOptions& options) {
  const std::vector<std::byte> bytes = ReadFileOrFail(path);
  return CompileTexts(PtxOfBytes(bytes.data(), bytes.size()), options);
}

int ConstantBytes(const Program& program) {
  uint64_t sum = 0;
  for (const Variable& variable : program.variables()) {
    if (variable.space == VariableSpace::kConstant) sum += variable.size_bytes;
  }
  return static_cast<int>(std::min<uint64_t>(sum, INT32_MAX));
}

int Attribute(const KernelCode& code, CUfunction_attribute attribute) {
  const Kernel& kernel = code.kernel();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(MaxThreadsPerBlock(kernel));
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(kernel.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return ConstantBytes(*code.program);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(kernel.local_bytes_per_thread);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(kernel.num_registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return kPtxVersion;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return 0;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return code.settings->max_dynamic_shared_bytes.load();
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return code.settings->shared_carveout.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return kernel.is_explicit_cluster ? 1 : 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return code.settings->required_cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH].load();
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return code.settings->allows_non_portable_cluster.load();
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return code.settings->cluster_scheduling.load();
    default:
      Fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void SetAttribute(const KernelCode& code, CUfunction_attribute attribute, int value) {
  KernelSettings& settings = *code.settings;
  const Kernel& kernel = code.kernel();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int most =
          static_cast<int>(MachineLimits::kSharedBytesPerBlockOptin) - static_cast<int>(kernel.static_shared_bytes);
      Require(value >= 0 && value <= most, CUDA_ERROR_INVALID_VALUE);
      settings.max_dynamic_shared_bytes.store(value);
      return;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      Require(value >= -1 && value <= 100, CUDA_ERROR_INVALID_VALUE);
      settings.shared_carveout.store(value);
      return;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      // Fixed at compile time: not to be changed.
      Require(kernel.required_cluster[0] == 0 && value >= 0, CUDA_ERROR_INVALID_VALUE);
      settings.required_cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH].store(value);
      return;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      Require(value == 0 || value == 1, CUDA_ERROR_INVALID_VALUE);
      settings.allows_non_portable_cluster.store(value);
      return;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      Require(value >= 0 && value <= 2, CUDA_ERROR_INVALID_VALUE);
      settings.cluster_scheduling.store(value);
      return;
    default:
      Fail(CUDA_ERROR_INVALID_VALUE);  // the others are read-only
  }
}

void ParameterOf(const KernelCode& code, size_t index, size_t* offset, size_t* size) {
  const auto& parameters = code.kernel().parameters;
  Require(index < parameters.size(), CUDA_ERROR_INVALID_VALUE);
  RequireOut(offset);
  *offset = parameters[index].offset_bytes;
  if (size != nullptr) *size = parameters[index].size_bytes;
}

void SetCacheConfig(const KernelCode& code, CUfunc_cache config) {
  Require(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
  code.settings->cache_config.store(config);
}

// Visible names first: internal variables of several texts may share one.
uint32_t VariableIndex(const Program& program, const char* name) {
  Require(name != nullptr, CUDA_ERROR_INVALID_VALUE);
  const auto& variables = program.variables();
  for (const bool is_visible : {true, false}) {
    for (uint32_t i = 0; i < variables.size(); ++i) {
      if (variables[i].name == name && variables[i].is_visible == is_visible) return i;
    }
  }
  Fail(CUDA_ERROR_NOT_FOUND);
}

void PutVariable(const Module& module, uint32_t index, CUdeviceptr* address, size_t* num_bytes) {
  Require(address != nullptr || num_bytes != nullptr, CUDA_ERROR_INVALID_VALUE);
  if (address != nullptr) *address = module.variable_addresses[index];
  if (num_bytes != nullptr) *num_bytes = module.program->variables()[index].size_bytes;
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                                 CUjit_option* options, void** optionValues) {
  TALLY_ENTRY({
    EnterContext();
    JitOptions jit(numOptions, options, optionValues);
    Load(module, image, jit);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  TALLY_ENTRY({
    JitOptions jit;
    Load(module, image, jit);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return cuModuleLoadData(module, fatCubin);
}

TALLY_EXPORT CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* fname) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(module);
    JitOptions jit;
    *module = LoadModule(context, LoadFile(fname, jit), nullptr)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleUnload(CUmodule hmod) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    const auto module = FindModule(hmod);
    AwaitContextIfAsked(*context);
    UnloadModule(module);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(mode);
    *mode = CU_MODULE_EAGER_LOADING;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(hfunc);
    RequireOut(name);
    const auto module = FindModule(hmod);
    const auto index = module->program->FindKernel(name);
    Require(index.has_value(), CUDA_ERROR_NOT_FOUND);
    *hfunc = module->functions[*index]->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(count);
    *count = static_cast<unsigned>(FindModule(mod)->functions.size());
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                                         CUmodule mod) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(functions);
    const auto module = FindModule(mod);
    const size_t count = std::min<size_t>(numFunctions, module->functions.size());
    for (size_t i = 0; i < count; ++i) functions[i] = module->functions[i]->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  TALLY_ENTRY({
    EnterContext();
    const auto module = FindModule(hmod);
    PutVariable(*module, VariableIndex(*module->program, name), dptr, bytes);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                                void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*,
                                                void**, unsigned int) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(library);
    JitOptions jit(numJitOptions, jitOptions, jitOptionsValues);
    *library = LoadLibrary(LoadImage(code, jit))->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                                                    void** jitOptionsValues, unsigned int numJitOptions,
                                                    CUlibraryOption*, void**, unsigned int) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(library);
    JitOptions jit(numJitOptions, jitOptions, jitOptionsValues);
    *library = LoadLibrary(LoadFile(fileName, jit))->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  TALLY_ENTRY({
    RequireInitialized();
    UnloadLibrary(FindLibrary(library));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pKernel);
    RequireOut(name);
    const auto found = FindLibrary(library);
    const auto index = found->program->FindKernel(name);
    Require(index.has_value(), CUDA_ERROR_NOT_FOUND);
    *pKernel = found->kernels[*index]->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(count);
    *count = static_cast<unsigned>(FindLibrary(lib)->kernels.size());
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(kernels);
    const auto library = FindLibrary(lib);
    const size_t count = std::min<size_t>(numKernels, library->kernels.size());
    for (size_t i = 0; i < count; ++i) kernels[i] = library->kernels[i]->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pMod);
    *pMod = ModuleOfLibrary(FindLibrary(library), context)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                                 const char* name) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    const auto found = FindLibrary(library);
    const uint32_t index = VariableIndex(*found->program, name);
    PutVariable(*ModuleOfLibrary(found, context), index, dptr, bytes);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                                  const char* name) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    const auto found = FindLibrary(library);
    const uint32_t index = VariableIndex(*found->program, name);
    Require(found->program->variables()[index].is_managed, CUDA_ERROR_NOT_FOUND);
    PutVariable(*ModuleOfLibrary(found, context), index, dptr, bytes);
  });
}

// Unified function pointers are an attribute (129) that this device does not have.
TALLY_EXPORT CUresult CUDAAPI cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(fptr);
    RequireOut(symbol);
    FindLibrary(library);
    return CUDA_ERROR_NOT_FOUND;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pFunc);
    FindKernel(kernel);
    *pFunc = FindFunction(reinterpret_cast<CUfunction>(kernel), context)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pLib);
    const auto library = FindKernel(kernel)->library.lock();
    Require(library != nullptr, CUDA_ERROR_INVALID_HANDLE);
    *pLib = library->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel,
                                                   CUdevice dev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    RequireOut(pi);
    *pi = Attribute(FindKernel(kernel)->code, attrib);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                                   CUdevice dev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    SetAttribute(FindKernel(kernel)->code, attrib, val);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    SetCacheConfig(FindKernel(kernel)->code, config);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel hfunc) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(name);
    *name = FindKernel(hfunc)->code.kernel().name.c_str();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                                                   size_t* paramSize) {
  TALLY_ENTRY({
    RequireInitialized();
    ParameterOf(FindKernel(kernel)->code, paramIndex, paramOffset, paramSize);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pi);
    *pi = Attribute(FindKernelCode(hfunc), attrib);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  TALLY_ENTRY({
    EnterContext();
    SetAttribute(FindKernelCode(hfunc), attrib, value);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  TALLY_ENTRY({
    EnterContext();
    SetCacheConfig(FindKernelCode(hfunc), config);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig) {
  TALLY_ENTRY({
    EnterContext();
    FindKernelCode(hfunc);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(hmod);
    const auto module = FindFunction(hfunc, context)->module.lock();
    Require(module != nullptr, CUDA_ERROR_INVALID_HANDLE);
    *hmod = module->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(name);
    *name = FindKernelCode(hfunc).kernel().name.c_str();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                                                 size_t* paramSize) {
  TALLY_ENTRY({
    EnterContext();
    ParameterOf(FindKernelCode(func), paramIndex, paramOffset, paramSize);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(state);
    FindKernelCode(function);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  TALLY_ENTRY({
    EnterContext();
    FindKernelCode(function);
  });
}
