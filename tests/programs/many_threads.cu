// Sixteen host threads, each with its own stream, buffers and events, all at once; then all threads launch into one
// shared stream, where only the total is known.
#include <thread>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kHostThreads = 16, kCount = 300, kRounds = 15;

void Reference(Results& results) {
  for (uint32_t t = 0; t < kHostThreads; ++t) {
    std::vector<uint32_t> values(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      values[i] = i + t;
      for (uint32_t round = 0; round < kRounds; ++round) values[i] = values[i] * (t + 3) + round;
    }
    results.Add("own stream", values);
  }
  results.AddValue<uint32_t>("shared stream", kHostThreads * kRounds * 64);
}

__global__ void Affine(uint32_t* values, uint32_t factor, uint32_t constant) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) values[i] = values[i] * factor + constant;
}
__global__ void Count(uint32_t* total) { atomicAdd(total, 1u); }

std::vector<uint32_t> Work(uint32_t t) {
  CHECK_CUDA(cudaSetDevice(0));
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i + t;
  cudaStream_t stream;
  cudaEvent_t event;
  uint32_t* device;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreate(&event));
  CHECK_CUDA(cudaMalloc(&device, kCount * 4));
  CHECK_CUDA(cudaMemcpyAsync(device, values.data(), kCount * 4, cudaMemcpyHostToDevice, stream));
  for (uint32_t round = 0; round < kRounds; ++round) {
    Affine<<<3, 128, 0, stream>>>(device, t + 3, round);
    CHECK_LAUNCH();
    if (round % 5 == 4) {
      CHECK_CUDA(cudaEventRecord(event, stream));
      CHECK_CUDA(cudaEventSynchronize(event));
    }
  }
  CHECK_CUDA(cudaMemcpyAsync(values.data(), device, kCount * 4, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaFree(device));
  CHECK_CUDA(cudaEventDestroy(event));
  CHECK_CUDA(cudaStreamDestroy(stream));
  return values;
}

template <class Body>
void OnAllThreads(Body body) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kHostThreads; ++t) threads.emplace_back([t, &body] { body(t); });
  for (std::thread& thread : threads) thread.join();
}

void Device(Results& results) {
  std::vector<std::vector<uint32_t>> values(kHostThreads);
  OnAllThreads([&values](uint32_t t) { values[t] = Work(t); });
  for (const std::vector<uint32_t>& of_thread : values) results.Add("own stream", of_thread);

  check::DeviceBuffer<uint32_t> total(1);
  total.Zero();
  cudaStream_t shared;
  CHECK_CUDA(cudaStreamCreate(&shared));
  OnAllThreads([&](uint32_t) {
    for (int round = 0; round < kRounds; ++round) {
      Count<<<1, 64, 0, shared>>>(total.get());
      CHECK_LAUNCH();
    }
  });
  CHECK_CUDA(cudaStreamSynchronize(shared));
  results.AddValue("shared stream", total.Download()[0]);
  CHECK_CUDA(cudaStreamDestroy(shared));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
