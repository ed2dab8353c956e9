// Host functions in streams: cudaLaunchHostFunc and cudaStreamAddCallback run in stream order, between the copies and
// kernels around them, on some other thread; they read results and prepare the next input.
#include <pthread.h>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kRounds = 10, kCount = 64;

void Reference(Results& results) {
  std::vector<uint32_t> seen, values(kCount, 1);
  for (uint32_t round = 0; round < kRounds; ++round) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < kCount; ++i) sum += values[i] = values[i] * 2 + i;
    seen.push_back(sum);
    for (uint32_t& value : values) value = value % 1000 + round;
  }
  results.Add("sums seen by host functions", seen);
  results.Add("order of callbacks", std::vector<uint32_t>{0, 100, 1, 101, 2, 102, 3, 103});
  results.AddValue<int>("callback status", cudaSuccess);
  results.AddValue<uint32_t>("on another thread", 1);
}

struct Shared {
  uint32_t* values;  // pinned
  std::vector<uint32_t> sums;
  uint32_t round = 0;
};

void ReadAndPrepare(void* argument) {
  Shared* shared = static_cast<Shared*>(argument);
  uint32_t sum = 0;
  for (int i = 0; i < kCount; ++i) sum += shared->values[i];
  shared->sums.push_back(sum);
  for (int i = 0; i < kCount; ++i) shared->values[i] = shared->values[i] % 1000 + shared->round;
  ++shared->round;
}

std::vector<uint32_t> order;
int callback_status = -1;
uint32_t other_thread = 0;
pthread_t main_thread;

void NoteHostFunction(void* argument) { order.push_back(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(argument))); }
void CUDART_CB NoteCallback(cudaStream_t, cudaError_t status, void* argument) {
  order.push_back(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(argument)));
  callback_status = status;
  other_thread = !pthread_equal(pthread_self(), main_thread);
}

__global__ void Double(uint32_t* values) { values[threadIdx.x] = values[threadIdx.x] * 2 + threadIdx.x; }

void Device(Results& results) {
  main_thread = pthread_self();
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  Shared shared;
  CHECK_CUDA(cudaMallocHost(&shared.values, kCount * sizeof(uint32_t)));
  for (int i = 0; i < kCount; ++i) shared.values[i] = 1;
  check::DeviceBuffer<uint32_t> device(kCount);
  for (int round = 0; round < kRounds; ++round) {
    CHECK_CUDA(cudaMemcpyAsync(device.get(), shared.values, device.size_bytes(), cudaMemcpyHostToDevice, stream));
    Double<<<1, kCount, 0, stream>>>(device.get());
    CHECK_CUDA(cudaMemcpyAsync(shared.values, device.get(), device.size_bytes(), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaLaunchHostFunc(stream, ReadAndPrepare, &shared));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("sums seen by host functions", shared.sums);
  for (uintptr_t i = 0; i < 4; ++i) {
    CHECK_CUDA(cudaLaunchHostFunc(stream, NoteHostFunction, reinterpret_cast<void*>(i)));
    CHECK_CUDA(cudaStreamAddCallback(stream, NoteCallback, reinterpret_cast<void*>(100 + i), 0));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("order of callbacks", order);
  results.AddValue<int>("callback status", callback_status);
  results.AddValue<uint32_t>("on another thread", other_thread);
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFreeHost(shared.values));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
