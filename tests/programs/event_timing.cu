// Event states and elapsed times: only relations are results, never durations. A pending event is not ready and has no
// elapsed time; later events are not earlier; events without timing refuse; re-recording moves an event.
#include "tests/programs/check.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.Add("codes", std::vector<int>{cudaSuccess, cudaErrorNotReady, cudaErrorNotReady, cudaSuccess,
                                        cudaErrorInvalidResourceHandle, cudaErrorInvalidResourceHandle});
  results.Add("relations", std::vector<uint32_t>(4, 1));
}

__global__ void WaitForGate(volatile uint32_t* gate) {
  while (*gate == 0) __nanosleep(1000);
}
__global__ void Sleep(int times) {
  for (int i = 0; i < times; ++i) __nanosleep(100000);
}

void Device(Results& results) {
  uint32_t *gate, *gate_device;
  CHECK_CUDA(cudaHostAlloc(&gate, sizeof(uint32_t), cudaHostAllocMapped));
  CHECK_CUDA(cudaHostGetDevicePointer(&gate_device, gate, 0));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaEvent_t begin, middle, end, without_timing, never_recorded;
  for (cudaEvent_t* event : {&begin, &middle, &end, &never_recorded}) CHECK_CUDA(cudaEventCreate(event));
  CHECK_CUDA(cudaEventCreateWithFlags(&without_timing, cudaEventDisableTiming | cudaEventBlockingSync));
  *static_cast<volatile uint32_t*>(gate) = 1;
  WaitForGate<<<1, 1, 0, stream>>>(gate_device);  // both kernels are loaded before one is held
  Sleep<<<1, 1, 0, stream>>>(0);
  CHECK_CUDA(cudaStreamSynchronize(stream));

  std::vector<int> codes;
  float milliseconds = -1.0f;
  codes.push_back(cudaEventQuery(never_recorded));
  *static_cast<volatile uint32_t*>(gate) = 0;
  CHECK_CUDA(cudaEventRecord(begin, stream));
  WaitForGate<<<1, 1, 0, stream>>>(gate_device);
  CHECK_CUDA(cudaEventRecord(middle, stream));
  codes.push_back(cudaEventQuery(middle));
  codes.push_back(cudaEventElapsedTime(&milliseconds, begin, middle));
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  CHECK_CUDA(cudaEventSynchronize(middle));
  codes.push_back(cudaEventQuery(middle));
  Sleep<<<1, 1, 0, stream>>>(20);
  CHECK_CUDA(cudaEventRecord(end, stream));
  CHECK_CUDA(cudaEventRecord(without_timing, stream));
  CHECK_CUDA(cudaEventSynchronize(without_timing));
  codes.push_back(cudaEventElapsedTime(&milliseconds, begin, without_timing));
  codes.push_back(cudaEventElapsedTime(&milliseconds, begin, never_recorded));
  results.Add("codes", codes);

  float first, second, whole, again;
  CHECK_CUDA(cudaEventElapsedTime(&first, begin, middle));
  CHECK_CUDA(cudaEventElapsedTime(&second, middle, end));
  CHECK_CUDA(cudaEventElapsedTime(&whole, begin, end));
  CHECK_CUDA(cudaEventRecord(begin, stream));  // now begin is after end
  CHECK_CUDA(cudaEventSynchronize(begin));
  CHECK_CUDA(cudaEventElapsedTime(&again, end, begin));
  float slack = 0.01f;  // resolution of the clock, and float rounding
  results.Add("relations",
              std::vector<uint32_t>{first >= 0.0f, second > 0.0f,
                                    whole + slack >= first + second && whole <= first + second + slack, again >= 0.0f});
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFreeHost(gate));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
