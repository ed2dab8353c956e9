// Driver API: modules, libraries, functions, kernels, the linker, occupancy.
#include <unistd.h>

#include "tests/programs/driver_symbols.h"

namespace {

using check::kPtx;

// A file with the PTX in it, removed at the end.
class PtxFile {
 public:
  PtxFile() {
    const int fd = mkstemps(path_, 4);
    const size_t size = strlen(kPtx);
    if (fd < 0 || write(fd, kPtx, size) != static_cast<ssize_t>(size)) check::Fail("cannot write %s", path_);
    close(fd);
  }
  ~PtxFile() { unlink(path_); }
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/tally-ptx-XXXXXX.ptx";
};

// data[i] = i becomes 3 i + 7.
void RunScale(CUfunction function) {
  constexpr unsigned kCount = 64;
  std::vector<unsigned> data(kCount);
  for (unsigned i = 0; i < kCount; ++i) data[i] = i;
  CUdeviceptr memory = 0;
  OK(DRIVER(cuMemAlloc_v2)(&memory, kCount * 4));
  OK(DRIVER(cuMemcpyHtoD_v2)(memory, data.data(), kCount * 4));
  unsigned addend = 7;
  void* parameters[] = {&memory, &addend};
  OK(DRIVER(cuLaunchKernel)(function, 1, 1, 1, kCount, 1, 1, 0, nullptr, parameters, nullptr));
  OK(DRIVER(cuMemcpyDtoH_v2)(data.data(), memory, kCount * 4));
  for (unsigned i = 0; i < kCount; ++i) EXPECT(data[i] == 3 * i + 7);
  OK(DRIVER(cuMemFree_v2)(memory));
}

void Modules(const char* path) {
  CUmodule module = nullptr, same = nullptr;
  CUfunction function = nullptr;
  OK(DRIVER(cuModuleLoad)(&module, path));
  OK(DRIVER(cuModuleGetFunction)(&function, module, "Scale"));
  RunScale(function);
  OK(DRIVER(cuModuleUnload)(module));
  EXPECT_CODE(CUDA_ERROR_FILE_NOT_FOUND, DRIVER(cuModuleLoad)(&module, "/nonexistent/file.ptx"));
  INVALID(DRIVER(cuModuleLoad)(nullptr, path));
  INVALID(DRIVER(cuModuleLoad)(&module, nullptr));

  char log[2048] = "left";
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log)), reinterpret_cast<void*>(32)};
  OK(DRIVER(cuModuleLoadDataEx)(&module, kPtx, 3, options, values));
  OK(DRIVER(cuModuleUnload)(module));
  if (check::IsTally()) {  // which does not mind that this is no fat binary
    OK(DRIVER(cuModuleLoadFatBinary)(&module, kPtx));
    OK(DRIVER(cuModuleUnload)(module));
  }
  FAILS(DRIVER(cuModuleLoadData)(&module, ".version 7.0\n.target sm_80\n.address_size 64\nnonsense"));
  INVALID(DRIVER(cuModuleLoadData)(&module, nullptr));
  OK(DRIVER(cuModuleLoadData)(&module, kPtx));
  OK(DRIVER(cuModuleGetFunction)(&function, module, "Scale"));
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, DRIVER(cuModuleGetFunction)(&function, module, "Absent"));
  INVALID(DRIVER(cuModuleGetFunction)(nullptr, module, "Scale"));
  INVALID(DRIVER(cuModuleGetFunction)(&function, module, nullptr));
  unsigned int count = 0;
  OK(DRIVER(cuModuleGetFunctionCount)(&count, module));
  EXPECT(count == 2);
  std::vector<CUfunction> functions(count);
  OK(DRIVER(cuModuleEnumerateFunctions)(functions.data(), count, module));
  EXPECT(functions[0] != functions[1] && functions[1] != nullptr);

  CUdeviceptr counter = 0;
  size_t bytes = 0;
  unsigned value = 0;
  OK(DRIVER(cuModuleGetGlobal_v2)(&counter, &bytes, module, "counter"));
  EXPECT(bytes == 4);
  OK(DRIVER(cuMemcpyDtoH_v2)(&value, counter, 4));
  EXPECT(value == 5);
  OK(DRIVER(cuModuleGetGlobal_v2)(nullptr, &bytes, module, "counter"));
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, DRIVER(cuModuleGetGlobal_v2)(&counter, &bytes, module, "absent"));
  CUmoduleLoadingMode mode;
  OK(DRIVER(cuModuleGetLoadingMode)(&mode));

  // Functions.
  const char* name = nullptr;
  OK(DRIVER(cuModuleGetFunction)(&function, module, "Scale"));
  OK(DRIVER(cuFuncGetModule)(&same, function));
  EXPECT(same == module);
  OK(DRIVER(cuFuncGetName)(&name, function));
  EXPECT(strcmp(name, "Scale") == 0);
  size_t offset = 77, size = 0;
  OK(DRIVER(cuFuncGetParamInfo)(function, 1, &offset, &size));
  EXPECT(offset == 8 && size == 4);
  FAILS(DRIVER(cuFuncGetParamInfo)(function, 2, &offset, &size));
  int attribute = 0;
  OK(DRIVER(cuFuncGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  EXPECT(attribute >= 256);
  OK(DRIVER(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024));
  OK(DRIVER(cuFuncGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  EXPECT(attribute == 64 * 1024);
  FAILS(DRIVER(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 3));
  INVALID(DRIVER(cuFuncGetAttribute)(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  OK(DRIVER(cuFuncSetCacheConfig)(function, CU_FUNC_CACHE_PREFER_SHARED));
  OK(DRIVER(cuFuncSetSharedMemConfig)(function, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  OK(DRIVER(cuFuncLoad)(function));
  CUfunctionLoadingState state;
  OK(DRIVER(cuFuncIsLoaded)(&state, function));
  EXPECT(state == CU_FUNCTION_LOADING_STATE_LOADED);
  RunScale(function);
  OK(DRIVER(cuModuleUnload)(module));
  if (check::IsTally()) {
    FAILS(DRIVER(cuModuleGetFunction)(&function, module, "Scale"));
    FAILS(DRIVER(cuFuncGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_NUM_REGS, reinterpret_cast<CUfunction>(0x1230)));
  }
}

void Libraries(const char* path) {
  CUlibrary library = nullptr, same = nullptr;
  OK(DRIVER(cuLibraryLoadFromFile)(&library, path, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(DRIVER(cuLibraryUnload)(library));
  FAILS(DRIVER(cuLibraryLoadFromFile)(&library, "/nonexistent", nullptr, nullptr, 0, nullptr, nullptr, 0));
  INVALID(DRIVER(cuLibraryLoadData)(nullptr, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(DRIVER(cuLibraryLoadData)(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  OK(DRIVER(cuLibraryGetKernel)(&kernel, library, "Scale"));
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, DRIVER(cuLibraryGetKernel)(&kernel, library, "Absent"));
  OK(DRIVER(cuLibraryGetKernel)(&kernel, library, "Scale"));
  unsigned int count = 0;
  OK(DRIVER(cuLibraryGetKernelCount)(&count, library));
  EXPECT(count == 2);
  CUkernel kernels[2] = {};
  OK(DRIVER(cuLibraryEnumerateKernels)(kernels, 2, library));
  EXPECT(kernels[0] == kernel || kernels[1] == kernel);
  CUmodule module = nullptr;
  OK(DRIVER(cuLibraryGetModule)(&module, library));
  EXPECT(module != nullptr);
  CUdeviceptr counter = 0;
  size_t bytes = 0;
  OK(DRIVER(cuLibraryGetGlobal)(&counter, &bytes, library, "counter"));
  EXPECT(bytes == 4 && counter != 0);
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, DRIVER(cuLibraryGetGlobal)(&counter, &bytes, library, "absent"));

  const char* name = nullptr;
  OK(DRIVER(cuKernelGetName)(&name, kernel));
  EXPECT(strcmp(name, "Scale") == 0);
  OK(DRIVER(cuKernelGetLibrary)(&same, kernel));
  EXPECT(same == library);
  size_t offset = 77, size = 0;
  OK(DRIVER(cuKernelGetParamInfo)(kernel, 0, &offset, &size));
  EXPECT(offset == 0 && size == 8);
  int attribute = 0;
  OK(DRIVER(cuKernelGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
  EXPECT(attribute >= 256);
  OK(DRIVER(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, kernel, 0));
  OK(DRIVER(cuKernelSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
  CUfunction function = nullptr;
  OK(DRIVER(cuKernelGetFunction)(&function, kernel));
  INVALID(DRIVER(cuKernelGetFunction)(nullptr, kernel));
  RunScale(function);
  RunScale(reinterpret_cast<CUfunction>(kernel));  // as the runtime does it
  OK(DRIVER(cuLibraryUnload)(library));
}

void Linking(const char* path) {
  const std::string text(kPtx);
  for (int old = 0; old < 2; ++old) {
    CUlinkState link = nullptr;
    auto* data = const_cast<char*>(text.c_str());
    OK(old ? DRIVER(cuLinkCreate)(0, nullptr, nullptr, &link) : DRIVER(cuLinkCreate_v2)(0, nullptr, nullptr, &link));
    OK(old ? DRIVER(cuLinkAddData)(link, CU_JIT_INPUT_PTX, data, text.size() + 1, "text", 0, nullptr, nullptr)
           : DRIVER(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, data, text.size() + 1, "text", 0, nullptr, nullptr));
    void* cubin = nullptr;
    size_t size = 0;
    OK(DRIVER(cuLinkComplete)(link, &cubin, &size));
    EXPECT(cubin != nullptr && size != 0);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    OK(DRIVER(cuModuleLoadData)(&module, cubin));
    OK(DRIVER(cuModuleGetFunction)(&function, module, "Scale"));
    RunScale(function);
    OK(DRIVER(cuModuleUnload)(module));
    OK(DRIVER(cuLinkDestroy)(link));
    OK(DRIVER(cuLinkCreate_v2)(0, nullptr, nullptr, &link));
    OK(old ? DRIVER(cuLinkAddFile)(link, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr)
           : DRIVER(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr));
    FAILS(DRIVER(cuLinkAddFile_v2)(link, CU_JIT_INPUT_PTX, "/nonexistent.ptx", 0, nullptr, nullptr));
    OK(DRIVER(cuLinkDestroy)(link));
  }
}

void Occupancy() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(DRIVER(cuModuleLoadData)(&module, kPtx));
  OK(DRIVER(cuModuleGetFunction)(&function, module, "Scale"));
  int blocks = 0, flagged = 0, grid = 0, block = 0, clusters = 0;
  size_t shared = 0;
  OK(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function, 128, 0));
  OK(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(&flagged, function, 128, 0, 0));
  EXPECT(blocks >= 8 && blocks == flagged);
  INVALID(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(nullptr, function, 128, 0));
  OK(DRIVER(cuOccupancyMaxPotentialBlockSize)(&grid, &block, function, nullptr, 0, 0));
  EXPECT(grid >= 1 && block % 32 == 0 && block > 0);
  int again = 0;
  OK(DRIVER(cuOccupancyMaxPotentialBlockSizeWithFlags)(&grid, &again, function, nullptr, 0, 0, 0));
  EXPECT(again == block);
  OK(DRIVER(cuOccupancyAvailableDynamicSMemPerBlock)(&shared, function, 2, 128));
  EXPECT(shared >= 16 * 1024);
  CUlaunchConfig config{};
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim.x = 2;
  cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
  config.gridDimX = 8;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int major = 0;
  OK(DRIVER(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  if (major >= 9) {
    OK(DRIVER(cuOccupancyMaxPotentialClusterSize)(&clusters, function, &config));
    EXPECT(clusters >= 2);
    OK(DRIVER(cuOccupancyMaxActiveClusters)(&clusters, function, &config));
    EXPECT(clusters >= 1);
  }
  OK(DRIVER(cuModuleUnload)(module));
}

void Checks() {
  const check::PrimaryContext context;
  const PtxFile file;
  Modules(file.path());
  Libraries(file.path());
  Linking(file.path());
  Occupancy();
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
