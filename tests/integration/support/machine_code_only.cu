// Two kernels without PTX: what does the program get, and what does its user read?
#include <cstdio>

__global__ void First() {}
__global__ void Second() {}

int main() {
  First<<<1, 1>>>();
  const cudaError_t first = cudaGetLastError();
  Second<<<1, 1>>>();
  const cudaError_t second = cudaGetLastError();
  std::printf("%s %s\n", cudaGetErrorName(first), cudaGetErrorName(second));
  return first == cudaSuccess && second == cudaSuccess ? 0 : 3;
}
