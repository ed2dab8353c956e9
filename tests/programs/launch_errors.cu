// Launches that cannot be: each must be refused by the launch itself with the runtime's code for it, must not be
// sticky, and must leave the device as it was.
#include "tests/programs/check.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.AddValue<int>("empty grid", cudaErrorInvalidValue);
  results.AddValue<int>("empty block", cudaErrorInvalidValue);
  results.AddValue<int>("block of 1025", cudaErrorInvalidValue);
  results.AddValue<int>("block of 32 x 33", cudaErrorInvalidValue);
  results.AddValue<int>("block depth 65", cudaErrorInvalidValue);
  results.AddValue<int>("grid height 65536", cudaErrorInvalidValue);
  results.AddValue<int>("grid width 2^31", cudaErrorInvalidValue);
  results.AddValue<int>("shared memory above 48 KB", cudaErrorInvalidValue);
  results.AddValue<int>("not a kernel", cudaErrorInvalidResourceHandle);
  results.AddValue<int>("peek", cudaErrorInvalidValue);
  results.AddValue<int>("get after peek", cudaErrorInvalidValue);
  results.AddValue<int>("get again", cudaSuccess);
  results.AddValue<int>("good launches that ran", 2);
}

__global__ void Increment(int* word) { atomicAdd(word, 1); }
__global__ void __launch_bounds__(64) Bounded(int* word) { atomicAdd(word, 100); }
void NotAKernel(int*) {}

int Launch(dim3 grid, dim3 block, size_t shared_bytes, int* word) {
  Increment<<<grid, block, shared_bytes>>>(word);
  return cudaGetLastError();
}

void Device(Results& results) {
  check::DeviceBuffer<int> word(1);
  word.Zero();
  CHECK_CUDA(static_cast<cudaError_t>(Launch(1, 1, 0, word.get())));
  results.AddValue<int>("empty grid", Launch(0, 1, 0, word.get()));
  results.AddValue<int>("empty block", Launch(1, 0, 0, word.get()));
  results.AddValue<int>("block of 1025", Launch(1, 1025, 0, word.get()));
  results.AddValue<int>("block of 32 x 33", Launch(1, dim3(32, 33), 0, word.get()));
  results.AddValue<int>("block depth 65", Launch(1, dim3(1, 1, 65), 0, word.get()));
  results.AddValue<int>("grid height 65536", Launch(dim3(1, 65536), 1, 0, word.get()));
  results.AddValue<int>("grid width 2^31", Launch(dim3(0x80000000u), 1, 0, word.get()));
  results.AddValue<int>("shared memory above 48 KB", Launch(1, 1, 49153, word.get()));
  Bounded<<<1, 65>>>(word.get());
  // Refused, but the documentation does not say with which code: shown, and only its being an error is checked.
  int beyond_bounds = cudaGetLastError();
  printf("more threads than launch bounds: %d\n", beyond_bounds);
  if (beyond_bounds == cudaSuccess) check::Fail("a launch beyond __launch_bounds__ was accepted");
  int* pointer = word.get();
  void* arguments[] = {&pointer};
  results.AddValue<int>("not a kernel",
                        cudaLaunchKernel(reinterpret_cast<const void*>(NotAKernel), 1, 1, arguments, 0, nullptr));
  cudaGetLastError();
  Increment<<<0, 1>>>(word.get());
  results.AddValue<int>("peek", cudaPeekAtLastError());
  results.AddValue<int>("get after peek", cudaGetLastError());
  results.AddValue<int>("get again", cudaGetLastError());
  CHECK_CUDA(static_cast<cudaError_t>(Launch(1, 1, 0, word.get())));
  CHECK_CUDA(cudaDeviceSynchronize());
  results.AddValue<int>("good launches that ran", word.Download()[0]);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
