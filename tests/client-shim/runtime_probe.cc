// A program with the CUDA runtime linked statically, as nvcc does by default: does it get past the runtime's checks of
// the driver? Prints what it found; exit status 0 only if every call succeeded.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    std::printf("cudaGetDeviceCount: %d %s\n", error, cudaGetErrorString(error));
    return 1;
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    std::printf("cudaGetDeviceProperties: %d\n", error);
    return 2;
  }
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, 1000); error != cudaSuccess) {
    std::printf("cudaMalloc: %d %s\n", error, cudaGetErrorString(error));
    return 3;
  }
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    std::printf("cudaDeviceSynchronize: %d %s\n", error, cudaGetErrorString(error));
    return 4;
  }
  std::printf("%d device, %s, %d multiprocessors, pointer %p\n", count, properties.name, properties.multiProcessorCount,
              memory);
  return 0;
}
