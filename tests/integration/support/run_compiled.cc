// Makes machine code at run time in one of the ways in which programs do, loads it, runs it and checks what it
// computed.
//
// usage: run_compiled nvrtc|nvrtc_library|nvrtc_separate|nvjitlink|culink|older|memory FILE|path FILE|make FOLDER
// `make` writes what Triton's cache has of a kernel; memory and path load such a cubin. `older` is for a device that is
// not there. The last line is "OK", or the call that failed with its error; the line before says how long loading took.
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

const char kSource[] = R"(
extern "C" __global__ void mix(unsigned* out, unsigned factor) {
  __shared__ unsigned row[128];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = i * factor;
  __syncthreads();
  unsigned sum = 0;
  for (unsigned k = 0; k < 128; ++k) sum = sum * 31 + row[(threadIdx.x + k) % 128];
  out[i] += sum;
})";
constexpr unsigned kThreads = 128, kBlocks = 48, kLaunches = 20;

[[noreturn]] void Fail(const char* call, long result) {
  std::printf("%s: %ld\n", call, result);
  std::exit(1);
}
void Check(long result, const char* call) {
  if (result != 0) Fail(call, result);
}
#define MUST(call) Check(call, #call)

struct Compiled {
  std::string cubin, ptx;
};
Compiled Compile(std::vector<const char*> options) {
  nvrtcProgram program;
  MUST(nvrtcCreateProgram(&program, kSource, "mix.cu", 0, nullptr, nullptr));
  MUST(nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()));
  size_t size = 0;
  MUST(nvrtcGetCUBINSize(program, &size));
  Compiled result{std::string(size, '\0'), {}};
  MUST(nvrtcGetCUBIN(program, result.cubin.data()));
  MUST(nvrtcGetPTXSize(program, &size));
  result.ptx.resize(size);
  MUST(nvrtcGetPTX(program, result.ptx.data()));
  nvrtcDestroyProgram(&program);
  return result;
}

std::string Linked(nvJitLinkInputType type, const std::string& input) {
  nvJitLinkHandle link;
  const char* options[] = {"-arch=sm_90"};
  MUST(nvJitLinkCreate(&link, 1, options));
  MUST(nvJitLinkAddData(link, type, input.data(), input.size(), "mix"));
  MUST(nvJitLinkComplete(link));
  size_t size = 0;
  MUST(nvJitLinkGetLinkedCubinSize(link, &size));
  std::string cubin(size, '\0');
  MUST(nvJitLinkGetLinkedCubin(link, cubin.data()));
  nvJitLinkDestroy(&link);
  return cubin;
}

std::string LinkedByDriver(std::string ptx) {
  CUlinkState link;
  MUST(cuLinkCreate(0, nullptr, nullptr, &link));
  MUST(cuLinkAddData(link, CU_JIT_INPUT_PTX, ptx.data(), ptx.size(), "mix", 0, nullptr, nullptr));
  void* cubin = nullptr;
  size_t size = 0;
  MUST(cuLinkComplete(link, &cubin, &size));
  std::string result(static_cast<const char*>(cubin), size);
  MUST(cuLinkDestroy(link));
  return result;
}

std::string FileAt(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void RunAndCheck(CUfunction function) {
  constexpr unsigned kCount = kThreads * kBlocks;
  CUdeviceptr out = 0;
  MUST(cuMemAlloc(&out, kCount * sizeof(unsigned)));
  MUST(cuMemsetD32(out, 7, kCount));
  std::vector<unsigned> expected(kCount, 7);
  for (unsigned factor = 1; factor <= kLaunches; ++factor) {
    void* arguments[] = {&out, &factor};
    MUST(cuLaunchKernel(function, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr, arguments, nullptr));
    for (unsigned i = 0; i < kCount; ++i) {
      unsigned sum = 0;
      for (unsigned k = 0; k < 128; ++k) sum = sum * 31 + (i / 128 * 128 + (i % 128 + k) % 128) * factor;
      expected[i] += sum;
    }
  }
  std::vector<unsigned> got(kCount);
  MUST(cuMemcpyDtoH(got.data(), out, kCount * sizeof(unsigned)));
  if (got != expected) Fail("wrong results", 0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string place = argc > 2 ? argv[2] : "";
  if (mode == "make") {
    const Compiled compiled = Compile({"-arch=sm_90"});
    std::ofstream(place + "/mix.cubin", std::ios::binary) << compiled.cubin;
    std::ofstream(place + "/mix.ptx") << compiled.ptx.c_str();
    std::ofstream(place + "/mix.json") << R"({"hash": "0", "num_warps": 4, "enable_fp_fusion": true, "name": "mix"})";
    std::puts("OK");
    return 0;
  }
  // Before cuInit, as programs may.
  std::string cubin;
  if (mode == "nvrtc" || mode == "nvrtc_library") cubin = Compile({"-arch=sm_90"}).cubin;
  if (mode == "nvrtc_separate") cubin = Linked(NVJITLINK_INPUT_CUBIN, Compile({"-arch=sm_90", "-rdc=true"}).cubin);
  if (mode == "older") cubin = Compile({"-arch=sm_80"}).cubin;
  if (mode == "memory") cubin = FileAt(place);
  if (mode == "nvjitlink") cubin = Linked(NVJITLINK_INPUT_PTX, Compile({"-arch=sm_80"}).ptx);

  CUdevice device;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  if (mode == "culink") cubin = LinkedByDriver(Compile({"-arch=sm_80"}).ptx);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const auto begin = std::chrono::steady_clock::now();
  if (mode == "nvrtc_library") {
    CUlibrary library;
    CUkernel kernel;
    MUST(cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    MUST(cuLibraryGetKernel(&kernel, library, "mix"));
    MUST(cuKernelGetFunction(&function, kernel));
  } else if (mode == "path") {
    MUST(cuModuleLoad(&module, place.c_str()));
  } else {
    MUST(cuModuleLoadData(&module, cubin.data()));
  }
  const auto end = std::chrono::steady_clock::now();
  std::printf("loaded in %.0f us\n", std::chrono::duration<double, std::micro>(end - begin).count());
  if (function == nullptr) {
    MUST(cuModuleGetFunction(&function, module, "mix"));
    unsigned count = 0;
    MUST(cuModuleGetFunctionCount(&count, module));
    if (count != 1) Fail("kernels in the module", count);
  }
  RunAndCheck(function);
  std::puts("OK");
  return 0;
}
