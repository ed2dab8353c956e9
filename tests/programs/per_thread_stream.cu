// Compiled with --default-stream per-thread: <<<>>> without a stream uses the calling thread's own one. Several host
// threads work independently; a thread held by its own gate does not hold the others; cudaStreamLegacy still exists.
#include <thread>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kThreads = 6, kCount = 1000, kRounds = 10;

void Reference(Results& results) {
  for (uint32_t t = 0; t < kThreads; ++t) {
    std::vector<uint32_t> values(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      values[i] = i;
      for (uint32_t round = 0; round < kRounds; ++round) values[i] = values[i] * (2 * t + 3) + round;
    }
    results.Add("thread", values);
  }
  results.AddValue<int>("own stream of a free thread", cudaSuccess);
  results.AddValue<int>("own stream of the held thread", cudaErrorNotReady);
  results.AddValue<int>("legacy stream waits for per-thread streams", cudaErrorNotReady);
}

__global__ void Affine(uint32_t* values, uint32_t factor, uint32_t constant) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) values[i] = values[i] * factor + constant;
}

__global__ void WaitForGate(volatile uint32_t* gate) {
  while (*gate == 0) __nanosleep(1000);
}

__global__ void Nothing() {}

std::vector<uint32_t> Work(uint32_t t) {
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i;
  check::DeviceBuffer<uint32_t> device(values);
  for (uint32_t round = 0; round < kRounds; ++round) {
    Affine<<<8, 128>>>(device.get(), 2 * t + 3, round);
    CHECK_LAUNCH();
  }
  CHECK_CUDA(cudaMemcpyAsync(values.data(), device.get(), device.size_bytes(), cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  return values;
}

void Device(Results& results) {
  std::vector<std::vector<uint32_t>> values(kThreads);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) threads.emplace_back([t, &values] { values[t] = Work(t); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<uint32_t>& of_thread : values) results.Add("thread", of_thread);

  uint32_t *gate, *gate_device;
  CHECK_CUDA(cudaHostAlloc(&gate, sizeof(uint32_t), cudaHostAllocMapped));
  CHECK_CUDA(cudaHostGetDevicePointer(&gate_device, gate, 0));
  // Each kernel once with the gate open: lazy loading of a kernel may wait for those that run.
  *static_cast<volatile uint32_t*>(gate) = 1;
  WaitForGate<<<1, 1>>>(gate_device);
  Nothing<<<1, 1>>>();
  CHECK_CUDA(cudaDeviceSynchronize());
  *static_cast<volatile uint32_t*>(gate) = 0;
  WaitForGate<<<1, 1>>>(gate_device);
  CHECK_LAUNCH();
  std::thread([&results] {
    Nothing<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
    results.AddValue<int>("own stream of a free thread", cudaStreamQuery(cudaStreamPerThread));
  }).join();
  results.AddValue<int>("own stream of the held thread", cudaStreamQuery(cudaStreamPerThread));
  cudaGetLastError();  // "not ready" is an answer, not a failed launch
  Nothing<<<1, 1, 0, cudaStreamLegacy>>>();
  CHECK_LAUNCH();
  results.AddValue<int>("legacy stream waits for per-thread streams", cudaStreamQuery(cudaStreamLegacy));
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaFreeHost(gate));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
