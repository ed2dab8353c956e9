// A kernel's attributes are set on each device for itself: more than 48 KB of dynamic shared memory allowed on the last
// device only must work there, and still be refused on the first; then the other way round is allowed too. With one
// device the first and the last are the same, and what needs two is left out (PROGRAM_NEEDS_DEVICES=2 makes that a
// failure).
#include "tests/programs/device_count.h"

using check::Results;

namespace {

constexpr int kBytes = 96 * 1024, kWords = kBytes / 4, kThreads = 256;

std::vector<uint32_t> Expected(uint32_t device) {
  std::vector<uint32_t> words;
  for (uint32_t i = 0; i < kWords; i += 101) words.push_back((kWords - 1 - i) * 2654435761u + device);
  return words;
}

void Reference(Results& results) {
  results.AddValue<int>("not yet allowed on the first", cudaErrorInvalidValue);
  results.Add("on the last", Expected(1));
  results.Add("on the first", Expected(0));
  results.AddValue<int>("what the first allows", kBytes);
  results.AddValue<int>("what the last allows", kBytes);
}

__global__ void ReverseInShared(uint32_t* out, uint32_t device) {
  extern __shared__ uint32_t words[];
  for (uint32_t i = threadIdx.x; i < kWords; i += blockDim.x) words[i] = i * 2654435761u + device;
  __syncthreads();
  for (uint32_t k = threadIdx.x; k * 101 < kWords; k += blockDim.x) out[k] = words[kWords - 1 - k * 101];
}

std::vector<uint32_t> RunOn(int device, uint32_t name) {
  CHECK_CUDA(cudaSetDevice(device));
  check::DeviceBuffer<uint32_t> out(Expected(0).size());
  ReverseInShared<<<1, kThreads, kBytes>>>(out.get(), name);
  CHECK_LAUNCH();
  return out.Download();
}

int AllowedOn(int device) {
  CHECK_CUDA(cudaSetDevice(device));
  cudaFuncAttributes attributes;
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, ReverseInShared));
  return attributes.maxDynamicSharedSizeBytes;
}

void Device(Results& results) {
  const int last = check::CountDevices() - 1;

  int refused = cudaErrorInvalidValue;
  if (last != 0) {
    AllowedOn(0);
    CHECK_CUDA(cudaSetDevice(last));
    CHECK_CUDA(cudaFuncSetAttribute(ReverseInShared, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    CHECK_CUDA(cudaSetDevice(0));
    check::DeviceBuffer<uint32_t> out(Expected(0).size());
    ReverseInShared<<<1, kThreads, kBytes>>>(out.get(), 0);
    refused = cudaGetLastError();
  }
  results.AddValue<int>("not yet allowed on the first", refused);
  if (last == 0) CHECK_CUDA(cudaFuncSetAttribute(ReverseInShared, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  results.Add("on the last", RunOn(last, 1));
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaFuncSetAttribute(ReverseInShared, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  results.Add("on the first", RunOn(0, 0));
  results.AddValue<int>("what the first allows", AllowedOn(0));
  results.AddValue<int>("what the last allows", AllowedOn(last));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
