#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class ModuleTest : public DriverTest {};

TEST_F(ModuleTest, FunctionsAndVariables) {
  CUmodule module = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, kTestPtx));
  CUfunction function = nullptr;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "no_such_kernel"));
  ASSERT_OK(cuModuleGetFunction(&function, module, "scale"));
  const char* name = nullptr;
  EXPECT_OK(cuFuncGetName(&name, function));
  EXPECT_STREQ("scale", name);
  CUmodule owner = nullptr;
  EXPECT_OK(cuFuncGetModule(&owner, function));
  EXPECT_EQ(module, owner);
  unsigned count = 0;
  EXPECT_OK(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(12U, count);
  std::vector<CUfunction> functions(count);
  EXPECT_OK(cuModuleEnumerateFunctions(functions.data(), count, module));
  EXPECT_NE(nullptr, functions.back());

  CUdeviceptr counter = 0;
  size_t size = 0;
  ASSERT_OK(cuModuleGetGlobal_v2(&counter, &size, module, "counter"));
  EXPECT_EQ(4U, size);
  EXPECT_EQ(41U, Read(counter, 1)[0]);
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&counter, &size, module, "nothing"));

  // A constant that is changed between launches.
  CUdeviceptr factor = 0;
  ASSERT_OK(cuModuleGetGlobal_v2(&factor, &size, module, "factor"));
  const CUdeviceptr in = Allocate(4), out = Allocate(4);
  EXPECT_OK(cuMemsetD32_v2(in, 5, 1));
  uint32_t n = 1;
  CUdeviceptr out_copy = out, in_copy = in;
  void* pointers[] = {&out_copy, &in_copy, &n};
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(15U, Read(out, 1)[0]);
  EXPECT_OK(cuMemsetD32_v2(factor, 10, 1));
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(50U, Read(out, 1)[0]);

  EXPECT_OK(cuModuleUnload(module));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
}

TEST_F(ModuleTest, AttributesAndParameters) {
  const CUfunction bounded = Kernel("bounded");
  int value = 0;
  EXPECT_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded));
  EXPECT_EQ(64, value);
  EXPECT_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, bounded));
  EXPECT_EQ(90, value);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, bounded));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(bounded, CU_FUNC_ATTRIBUTE_NUM_REGS, 5));
  size_t offset = 99, size = 99;
  EXPECT_OK(cuFuncGetParamInfo(Kernel("struct_sum"), 1, &offset, &size));
  EXPECT_EQ(8U, offset);
  EXPECT_EQ(12U, size);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(Kernel("struct_sum"), 2, &offset, &size));
}

TEST_F(ModuleTest, BadImages) {
  CUmodule module = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, nullptr));
  alignas(8) unsigned char elf[128] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  EXPECT_EQ(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, elf));
  alignas(8) unsigned char noise[64];
  std::memset(noise, 0x93, sizeof noise);
  EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, noise));
  EXPECT_EQ(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent/file.ptx"));

  // The error log says where.
  const char* const bad = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { mov.u32 %r1, ; }\n";
  char log[256] = "untouched";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  EXPECT_EQ(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, bad, 2, options, values));
  EXPECT_NE(nullptr, std::strstr(log, "4:")) << log;
  EXPECT_EQ(std::strlen(log), reinterpret_cast<size_t>(values[1]));
}

TEST_F(ModuleTest, Libraries) {
  CUlibrary library = nullptr;
  ASSERT_OK(cuLibraryLoadData(&library, kTestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  EXPECT_OK(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(12U, count);
  CUkernel kernel = nullptr;
  ASSERT_OK(cuLibraryGetKernel(&kernel, library, "fill"));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "nothing"));
  ASSERT_OK(cuLibraryGetKernel(&kernel, library, "fill"));
  const char* name = nullptr;
  EXPECT_OK(cuKernelGetName(&name, kernel));
  EXPECT_STREQ("fill", name);
  CUlibrary owner = nullptr;
  EXPECT_OK(cuKernelGetLibrary(&owner, kernel));
  EXPECT_EQ(library, owner);
  size_t offset = 0, size = 0;
  EXPECT_OK(cuKernelGetParamInfo(kernel, 2, &offset, &size));
  EXPECT_EQ(12U, offset);
  EXPECT_EQ(4U, size);

  // Launched as it is, and through the function of this context.
  CUdeviceptr out = Allocate(4);
  uint32_t value = 3, n = 1;
  void* pointers[] = {&out, &value, &n};
  EXPECT_OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(3U, Read(out, 1)[0]);
  CUfunction function = nullptr, again = nullptr;
  EXPECT_OK(cuKernelGetFunction(&function, kernel));
  EXPECT_OK(cuKernelGetFunction(&again, kernel));
  EXPECT_EQ(function, again);
  value = 4;
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(4U, Read(out, 1)[0]);

  // Settings of the kernel are those of its functions.
  int set = 0;
  EXPECT_OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 70000, kernel, 0));
  EXPECT_OK(cuFuncGetAttribute(&set, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  EXPECT_EQ(70000, set);

  CUdeviceptr counter = 0, of_module = 0;
  CUmodule module = nullptr;
  EXPECT_OK(cuLibraryGetGlobal(&counter, &size, library, "counter"));
  EXPECT_OK(cuLibraryGetModule(&module, library));
  EXPECT_OK(cuModuleGetGlobal_v2(&of_module, &size, module, "counter"));
  EXPECT_EQ(counter, of_module);
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&counter, &size, library, "counter"));
  EXPECT_OK(cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&name, kernel));
}

TEST_F(ModuleTest, LibraryHasItsOwnVariablesPerContext) {
  CUlibrary library = nullptr;
  ASSERT_OK(cuLibraryLoadData(&library, kTestPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUdeviceptr here = 0, there = 0;
  EXPECT_OK(cuLibraryGetGlobal(&here, nullptr, library, "counter"));
  CUcontext other = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
  EXPECT_OK(cuLibraryGetGlobal(&there, nullptr, library, "counter"));
  EXPECT_NE(here, there);
  EXPECT_OK(cuCtxDestroy_v2(other));
  EXPECT_OK(cuLibraryUnload(library));
}

TEST_F(ModuleTest, FilesAndLinking) {
  const std::string path = testing::TempDir() + "/tally_sim_module_test.ptx";
  std::ofstream(path) << kTestPtx;
  CUmodule module = nullptr;
  EXPECT_OK(cuModuleLoad(&module, path.c_str()));
  CUlibrary library = nullptr;
  EXPECT_OK(cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  std::remove(path.c_str());

  const std::string first =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .global .align 4 .u32 shared_word = 6;\n";
  const std::string second =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".extern .global .align 4 .u32 shared_word;\n"
      ".visible .entry read_word(.param .u64 out) {\n"
      "  .reg .b32 %r<2>;\n  .reg .b64 %rd<2>;\n  ld.param.u64 %rd1, [out];\n"
      "  ld.global.u32 %r1, [shared_word];\n  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
  CUlinkState link = nullptr;
  ASSERT_OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  EXPECT_OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(first.c_str()), first.size() + 1, "first", 0,
                             nullptr, nullptr));
  EXPECT_OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(second.c_str()), second.size() + 1, "second", 0,
                             nullptr, nullptr));
  void* image = nullptr;
  size_t size = 0;
  ASSERT_OK(cuLinkComplete(link, &image, &size));
  EXPECT_GT(size, first.size() + second.size());
  ASSERT_OK(cuModuleLoadData(&module, image));
  EXPECT_OK(cuLinkDestroy(link));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleGetFunction(&function, module, "read_word"));
  CUdeviceptr out = Allocate(4);
  void* pointers[] = {&out};
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(6U, Read(out, 1)[0]);
}

TEST_F(ModuleTest, UnloadWhileRunning) {
  CUmodule module = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, kTestPtx));
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleGetFunction(&function, module, "wait_for_flag"));
  uint32_t* const flags = NewFlags();
  CUdeviceptr flag = Address(flags), out = Address(&flags[1]);
  uint32_t value = 2;
  void* pointers[] = {&flag, &out, &value};
  ASSERT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_OK(cuModuleUnload(module));
  Raise(flags);
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(2U, flags[1]);
}

// 4 MB of text that would take 500 MB, and a function whose analysis would take gigabytes.
TEST_F(ModuleTest, CodeThatWouldTakeTooMuchMemoryIsRefused) {
  const auto load = [](const std::string& body) {
    const std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n" + body + "}\n";
    char log[256] = {};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(uintptr_t{sizeof(log)})};
    CUmodule module = nullptr;
    EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuModuleLoadDataEx(&module, text.c_str(), 2, options, values));
    return std::string(log);
  };
  std::string returns;
  for (int i = 0; i < (1 << 20) + 1; ++i) returns += "ret;";
  EXPECT_NE(load(returns).find("more than 1048576 statements"), std::string::npos);
  // Every register lives through every block.
  constexpr int kMany = 24'000;
  std::string blocks = ".reg .pred %p;\n.reg .u32 %r<" + std::to_string(kMany) + ">;\n";
  for (int i = 0; i < kMany; ++i) blocks += "mov.u32 %r" + std::to_string(i) + ", 1;\n";
  for (int i = 0; i < kMany; ++i) {
    const std::string number = std::to_string(i);
    blocks += "@%p bra L" + number + ";\nL" + number + ": mov.u32 %r" + number + ", %r0;\n";
  }
  EXPECT_NE(load(blocks).find("registers that live across"), std::string::npos);
}

}  // namespace
}  // namespace tally::sim_driver
