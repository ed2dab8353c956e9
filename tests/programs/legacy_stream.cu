// The legacy default stream waits for blocking streams and they for it; non-blocking streams do neither. Shown without
// clocks: a kernel that spins until the host opens its gate holds one stream, and the others are asked for their state.
#include "tests/programs/check.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.AddValue<int>("blocking stream behind the default stream", cudaErrorNotReady);
  results.AddValue<int>("non-blocking stream beside the default stream", cudaSuccess);
  results.AddValue<int>("default stream behind a blocking stream", cudaErrorNotReady);
  results.AddValue<int>("default stream beside a non-blocking stream", cudaSuccess);
  results.Add("order", std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8});
}

__global__ void WaitForGate(volatile uint32_t* gate) {
  while (*gate == 0) __nanosleep(1000);
}

__global__ void Touch(uint32_t* word) { *word += 1; }

// Each launch notes its turn; with an order across streams the turns are 1, 2, 3, ...
__global__ void NoteTurn(uint32_t* turn, uint32_t* slot, int sleeps) {
  for (int i = 0; i < sleeps; ++i) __nanosleep(2000);
  *slot = ++*turn;
}

void Device(Results& results) {
  uint32_t *gate, *gate_device;
  CHECK_CUDA(cudaHostAlloc(&gate, sizeof(uint32_t), cudaHostAllocMapped));
  CHECK_CUDA(cudaHostGetDevicePointer(&gate_device, gate, 0));
  check::DeviceBuffer<uint32_t> words(16);
  words.Zero();
  cudaStream_t blocking, non_blocking;
  CHECK_CUDA(cudaStreamCreate(&blocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&non_blocking, cudaStreamNonBlocking));
  CHECK_CUDA(cudaDeviceSynchronize());

  // Each kernel once with the gate open: lazy loading of a kernel may wait for those that run.
  *static_cast<volatile uint32_t*>(gate) = 1;
  WaitForGate<<<1, 1>>>(gate_device);
  Touch<<<1, 1>>>(words.get());
  CHECK_CUDA(cudaDeviceSynchronize());

  // The default stream is held.
  *static_cast<volatile uint32_t*>(gate) = 0;
  WaitForGate<<<1, 1>>>(gate_device);
  Touch<<<1, 1, 0, blocking>>>(words.get());
  Touch<<<1, 1, 0, non_blocking>>>(words.get() + 1);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaStreamSynchronize(non_blocking));
  results.AddValue<int>("blocking stream behind the default stream", cudaStreamQuery(blocking));
  results.AddValue<int>("non-blocking stream beside the default stream", cudaStreamQuery(non_blocking));
  cudaGetLastError();  // "not ready" is an answer, not a failed launch
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  CHECK_CUDA(cudaDeviceSynchronize());

  // A blocking stream is held, so the default stream is; then only a non-blocking one is.
  __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
  WaitForGate<<<1, 1, 0, blocking>>>(gate_device);
  Touch<<<1, 1>>>(words.get());
  CHECK_LAUNCH();
  results.AddValue<int>("default stream behind a blocking stream", cudaStreamQuery(nullptr));
  cudaGetLastError();  // "not ready" is an answer, not a failed launch
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  CHECK_CUDA(cudaDeviceSynchronize());
  __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
  WaitForGate<<<1, 1, 0, non_blocking>>>(gate_device);
  Touch<<<1, 1>>>(words.get());
  CHECK_LAUNCH();
  CHECK_CUDA(cudaStreamSynchronize(nullptr));
  results.AddValue<int>("default stream beside a non-blocking stream", cudaStreamQuery(nullptr));
  cudaGetLastError();  // "not ready" is an answer, not a failed launch
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  CHECK_CUDA(cudaDeviceSynchronize());

  // Alternating between the default and a blocking stream keeps program order.
  words.Zero();
  for (int i = 0; i < 8; ++i) {
    NoteTurn<<<1, 1, 0, i % 2 == 0 ? cudaStream_t(nullptr) : blocking>>>(words.get(), words.get() + 1 + i, (8 - i) * 3);
    CHECK_LAUNCH();
  }
  std::vector<uint32_t> turns = words.Download();
  results.Add("order", turns.data() + 1, 8);
  CHECK_CUDA(cudaStreamDestroy(blocking));
  CHECK_CUDA(cudaStreamDestroy(non_blocking));
  CHECK_CUDA(cudaFreeHost(gate));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
