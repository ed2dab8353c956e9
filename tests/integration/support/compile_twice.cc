// Compiles two kernels, one of them twice, with NVRTC, and prints what came out.
#include <cuda.h>
#include <nvrtc.h>

#include <cstdio>
#include <string>

int main() {
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  for (const char* factor : {"2", "3", "2"}) {
    const std::string source =
        std::string("extern \"C\" __global__ void scale(float* x) { x[threadIdx.x] *= ") + factor + "; }";
    nvrtcProgram program;
    const char* const options[] = {"--gpu-architecture=sm_90"};
    size_t size_bytes = 0;
    if (nvrtcCreateProgram(&program, source.c_str(), "scale.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS ||
        nvrtcCompileProgram(program, 1, options) != NVRTC_SUCCESS ||
        nvrtcGetCUBINSize(program, &size_bytes) != NVRTC_SUCCESS)
      return 2;
    std::string code(size_bytes, '\0');
    if (nvrtcGetCUBIN(program, code.data()) != NVRTC_SUCCESS) return 3;
    std::printf("%s: %zu bytes", factor, size_bytes);
    for (const char byte : code) std::printf(" %02x", static_cast<unsigned char>(byte));
    std::printf("\n");
    nvrtcDestroyProgram(&program);
  }
  return 0;
}
