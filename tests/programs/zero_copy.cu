// Kernels that read and write host memory directly: no copy anywhere. The host reads what the kernel wrote right after
// the stream is done, and a running kernel and the host answer each other through two words of mapped memory.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 20000;
constexpr uint32_t kRounds = 20;  // of question and answer

std::vector<uint32_t> Source() { return check::RandomIntegers<uint32_t>(kCount, 31); }

void Reference(Results& results) {
  std::vector<uint32_t> values = Source();
  for (uint32_t& value : values) value ^= value >> 5;
  results.Add("mapped", values);
  uint32_t state = 1;
  for (uint32_t round = 0; round < kRounds; ++round) state = state * 1664525u + 1013904223u + round;
  results.AddValue("conversation", state);
}

__global__ void Mix(const uint32_t* in, uint32_t* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] ^ (in[i] >> 5);
}

// words[0]: the number of questions that the host has asked; words[1]: answers given; words[2]: the state.
__global__ void Answer(volatile uint32_t* words, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    while (words[0] <= round) __nanosleep(1000);
    words[2] = words[2] * 1664525u + 1013904223u + round;
    __threadfence_system();
    words[1] = round + 1;
  }
}

void Device(Results& results) {
  std::vector<uint32_t> source = Source();
  uint32_t *in, *out, *in_device, *out_device;
  CHECK_CUDA(cudaHostAlloc(&in, kCount * sizeof(uint32_t), cudaHostAllocMapped));
  CHECK_CUDA(cudaHostAlloc(&out, kCount * sizeof(uint32_t), cudaHostAllocMapped | cudaHostAllocPortable));
  memcpy(in, source.data(), kCount * sizeof(uint32_t));
  CHECK_CUDA(cudaHostGetDevicePointer(&in_device, in, 0));
  CHECK_CUDA(cudaHostGetDevicePointer(&out_device, out, 0));
  Mix<<<(kCount + 127) / 128, 128>>>(in_device, out_device, kCount);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaDeviceSynchronize());
  results.Add("mapped", out, kCount);

  uint32_t *words, *words_device;
  CHECK_CUDA(cudaMallocHost(&words, 3 * sizeof(uint32_t)));
  CHECK_CUDA(cudaHostGetDevicePointer(&words_device, words, 0));
  words[0] = words[1] = 0;
  words[2] = 1;
  Answer<<<1, 1>>>(words_device, kRounds);
  CHECK_LAUNCH();
  volatile uint32_t* seen = words;
  for (uint32_t round = 0; round < kRounds; ++round) {
    __atomic_store_n(&words[0], round + 1, __ATOMIC_RELEASE);
    while (seen[1] != round + 1) {
      cudaError_t state = cudaStreamQuery(nullptr);  // a kernel that failed would never answer
      if (state != cudaErrorNotReady && state != cudaSuccess) CHECK_CUDA(state);
    }
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  results.AddValue("conversation", words[2]);
  CHECK_CUDA(cudaFreeHost(in));
  CHECK_CUDA(cudaFreeHost(out));
  CHECK_CUDA(cudaFreeHost(words));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
