// Kernels that fault, each in a process of its own: the code that synchronisation gives, that it is sticky (every later
// call of that process gives it too), that cudaGetLastError does not clear it, and that the next process is well.
#include <cassert>

#include "tests/programs/child_case.h"

using check::Results;

namespace {

struct Fault {
  const char* name;
  int code;
};
const Fault kFaults[] = {
    {"null", cudaErrorIllegalAddress},
    {"wild", cudaErrorIllegalAddress},
    {"misaligned", cudaErrorMisalignedAddress},
    {"assert", cudaErrorAssert},
};

void Reference(Results& results) {
  for (const Fault& fault : kFaults) {
    char line[200];
    snprintf(line, sizeof(line), "synchronise %d, again %d, malloc %d, copy %d, launch %d, last %d\n", fault.code,
             fault.code, fault.code, fault.code, fault.code, fault.code);
    results.AddText(fault.name, line);
    results.AddText("after it", "healthy 42\n");
  }
}

__global__ void Write(int* target, int value) { *target = value; }
__global__ void Assert(int value) { assert(value == 1); }
__global__ void Trap() { __trap(); }

int RunHealthyCase() {
  check::DeviceBuffer<int> word(1);
  Write<<<1, 1>>>(word.get(), 42);
  CHECK_LAUNCH();
  printf("healthy %d\n", word.Download()[0]);
  return 0;
}

int RunFaultCase(const std::string& name) {
  int* word;
  CHECK_CUDA(cudaMalloc(&word, 4096));
  if (name == "null") Write<<<1, 1>>>(nullptr, 1);
  if (name == "freed") {
    int* freed;  // large, so that it is not a part of a page that stays mapped
    CHECK_CUDA(cudaMalloc(&freed, 64 << 20));
    CHECK_CUDA(cudaFree(freed));
    Write<<<1, 1>>>(freed + 1000, 1);
  }
  if (name == "wild") Write<<<1, 1>>>(reinterpret_cast<int*>(0x123400000000ull), 1);
  if (name == "misaligned") Write<<<1, 1>>>(reinterpret_cast<int*>(reinterpret_cast<uintptr_t>(word) + 2), 1);
  if (name == "assert") Assert<<<1, 32>>>(0);
  if (name == "trap") Trap<<<1, 1>>>();
  CHECK_LAUNCH();
  int first = cudaDeviceSynchronize();
  int again = cudaDeviceSynchronize();
  int* other;
  int malloc_code = cudaMalloc(&other, 16);
  int value;
  int copy_code = cudaMemcpy(&value, word, 4, cudaMemcpyDeviceToHost);
  Write<<<1, 1>>>(word, 1);
  int launch_code = cudaGetLastError();
  int last = cudaPeekAtLastError();
  if (last == cudaSuccess) last = cudaDeviceSynchronize();
  printf("synchronise %d, again %d, malloc %d, copy %d, launch %d, last %d\n", first, again, malloc_code, copy_code,
         launch_code, last);
  return 0;
}

void Device(Results& results) {
  for (const Fault& fault : kFaults) {
    results.AddText(fault.name, check::RunCase(fault.name).output);
    results.AddText("after it", check::RunCase("healthy").output);
  }
  // Only shown: the code of __trap() is not the same on all devices, and whether freed memory is still mapped is the
  // driver's affair (on an H200 the write goes through, the software driver reports it).
  printf("trap: %s", check::RunCase("trap").output.c_str());
  printf("freed: %s", check::RunCase("freed").output.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) {
    return strcmp(argv[2], "healthy") == 0 ? RunHealthyCase() : RunFaultCase(argv[2]);
  }
  return check::RunProgram(argc, argv, Reference, Device);
}
