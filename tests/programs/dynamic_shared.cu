// More than 48 KB of dynamic shared memory: refused until the kernel's attribute allows it, then used to its last
// byte, beside static shared memory; and the carve-out preference, which must not change results.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kBytes = 160 * 1024, kWords = kBytes / 4, kThreads = 512;

void Reference(Results& results) {
  results.AddValue<int>("without attribute", cudaErrorInvalidValue);
  results.AddValue<int>("too much for any attribute", cudaErrorInvalidValue);
  std::vector<uint32_t> out;
  for (uint32_t block = 0; block < 2; ++block)
    for (uint32_t i = 0; i < kWords; i += 37) out.push_back((kWords - 1 - i) * 2654435761u + block + 7);
  results.Add("words", out);
  results.AddValue<int>("attribute", kBytes);
}

__global__ void ReverseInShared(uint32_t* out) {
  extern __shared__ uint32_t words[];
  __shared__ uint32_t seven;
  if (threadIdx.x == 0) seven = 7;
  for (uint32_t i = threadIdx.x; i < kWords; i += blockDim.x) words[i] = i * 2654435761u + blockIdx.x;
  __syncthreads();
  uint32_t per_block = (kWords + 36) / 37;
  for (uint32_t k = threadIdx.x; k < per_block; k += blockDim.x) {
    out[blockIdx.x * per_block + k] = words[kWords - 1 - k * 37] + seven;
  }
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> out(2 * ((kWords + 36) / 37));
  ReverseInShared<<<2, kThreads, kBytes>>>(out.get());
  results.AddValue<int>("without attribute", cudaGetLastError());
  results.AddValue<int>("too much for any attribute",
                        cudaFuncSetAttribute(ReverseInShared, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
  cudaGetLastError();
  CHECK_CUDA(cudaFuncSetAttribute(ReverseInShared, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  CHECK_CUDA(cudaFuncSetAttribute(ReverseInShared, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
  ReverseInShared<<<2, kThreads, kBytes>>>(out.get());
  CHECK_LAUNCH();
  results.Add("words", out.Download());
  cudaFuncAttributes attributes;
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, ReverseInShared));
  results.AddValue<int>("attribute", attributes.maxDynamicSharedSizeBytes);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
