// Calls with arguments that cannot be: each gives the documented code, none is sticky, and the device works afterwards.
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

struct Expectation {
  const char* name;
  int code;
};
const Expectation kExpected[] = {
    {"device ordinal too large", cudaErrorInvalidDevice},
    {"negative device ordinal", cudaErrorInvalidDevice},
    {"allocation of 2^50 bytes", cudaErrorMemoryAllocation},
    {"free of an address never allocated", cudaErrorInvalidValue},
    {"second free", cudaErrorInvalidValue},
    {"free of null", cudaSuccess},
    {"copy of unknown kind", cudaErrorInvalidMemcpyDirection},
    {"copy to null", cudaErrorInvalidValue},
    {"copy of no bytes", cudaSuccess},
    {"memset of null", cudaErrorInvalidValue},
    {"pitch smaller than width", cudaErrorInvalidPitchValue},
    {"address of what is no symbol", cudaErrorInvalidSymbol},
    {"attributes of what is no kernel", cudaErrorInvalidResourceHandle},
    {"unknown device attribute", cudaErrorInvalidValue},
    {"driver: unknown kernel in a module", CUDA_ERROR_NOT_FOUND},
    {"driver: unknown global in a module", CUDA_ERROR_NOT_FOUND},
    {"driver: null image", CUDA_ERROR_INVALID_VALUE},
    {"works afterwards", 17},
};

void Reference(Results& results) {
  for (const Expectation& expectation : kExpected) results.AddValue<int>(expectation.name, expectation.code);
}

__device__ int symbol;
__global__ void Set(int value) { symbol = value; }

const char kModule[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .entry Nothing() { ret; }
)";

void Device(Results& results) {
  CHECK_CUDA(cudaFree(nullptr));
  std::vector<int> codes;
  int not_a_symbol = 0, value = 0;
  int* pointer = nullptr;
  std::vector<char> host(20000);
  codes.push_back(cudaSetDevice(4096));
  codes.push_back(cudaSetDevice(-1));
  codes.push_back(cudaMalloc(&pointer, size_t{1} << 50));
  codes.push_back(cudaFree(reinterpret_cast<void*>(0x123400000000ull)));
  CHECK_CUDA(cudaMalloc(&pointer, 100));
  CHECK_CUDA(cudaFree(pointer));
  codes.push_back(cudaFree(pointer));
  codes.push_back(cudaFree(nullptr));
  CHECK_CUDA(cudaMalloc(&pointer, 1 << 16));
  codes.push_back(cudaMemcpy(pointer, host.data(), 100, static_cast<cudaMemcpyKind>(9)));
  codes.push_back(cudaMemcpy(nullptr, host.data(), 100, cudaMemcpyHostToDevice));
  codes.push_back(cudaMemcpy(pointer, host.data(), 0, cudaMemcpyHostToDevice));
  codes.push_back(cudaMemset(nullptr, 1, 100));
  codes.push_back(cudaMemcpy2D(pointer, 10, host.data(), 20, 20, 2, cudaMemcpyHostToDevice));
  void* address = nullptr;
  codes.push_back(cudaGetSymbolAddress(&address, reinterpret_cast<const void*>(&not_a_symbol)));
  cudaFuncAttributes attributes;
  codes.push_back(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&not_a_symbol)));
  codes.push_back(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0));

  CUmodule module, other;
  CHECK_DRIVER(DRIVER_ENTRY(cuModuleLoadData)(&module, kModule));
  CUfunction function;
  CUdeviceptr global;
  size_t size;
  codes.push_back(DRIVER_ENTRY(cuModuleGetFunction)(&function, module, "Something"));
  codes.push_back(DRIVER_ENTRY(cuModuleGetGlobal)(&global, &size, module, "something"));
  // Neither ELF nor fatbin nor PTX: INVALID_IMAGE or INVALID_PTX, as the driver takes it. Shown, and an error it must
  // be.
  int no_image = DRIVER_ENTRY(cuModuleLoadData)(&other, "\x01\x02\x03 this is no image");
  printf("image that is none: %d\n", no_image);
  if (no_image == CUDA_SUCCESS) check::Fail("an image that is none was loaded");
  codes.push_back(DRIVER_ENTRY(cuModuleLoadData)(&other, nullptr));
  CHECK_DRIVER(DRIVER_ENTRY(cuModuleUnload)(module));

  cudaGetLastError();
  Set<<<1, 1>>>(17);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaMemcpyFromSymbol(&value, symbol, sizeof(value)));
  codes.push_back(value);
  for (size_t i = 0; i < codes.size(); ++i) results.AddValue<int>(kExpected[i].name, codes[i]);
  CHECK_CUDA(cudaFree(pointer));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
