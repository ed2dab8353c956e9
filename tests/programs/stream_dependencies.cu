// Streams joined by events: a diamond (one producer, two branches, one consumer) repeated with the same events, and a
// chain that hops over four streams. Kernels wait a while first, so a missing dependency shows as a wrong number.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 512, kRounds = 8, kHops = 12;

void Reference(Results& results) {
  std::vector<uint32_t> values(kCount, 1);
  for (int round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kCount; ++i) {
      uint32_t top = values[i] * 3 + i;
      values[i] = (top * 5 + 1) ^ (top * 7 + 2);
    }
  }
  results.Add("diamond", values);
  std::vector<uint32_t> chain(kCount, 9);
  for (int hop = 0; hop < kHops; ++hop) {
    for (uint32_t i = 0; i < kCount; ++i) chain[i] = chain[i] * (2 * hop + 3) + hop + i;
  }
  results.Add("chain", chain);
}

// Waits about `loops` sleeps, then out = in * factor + constant (+ i).
__global__ void Affine(const uint32_t* in, uint32_t* out, uint32_t factor, uint32_t constant, bool add_index,
                       int loops) {
  for (int k = 0; k < loops; ++k) __nanosleep(2000);
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] = in[i] * factor + constant + (add_index ? i : 0);
}

__global__ void Xor(const uint32_t* left, const uint32_t* right, uint32_t* out) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] = left[i] ^ right[i];
}

void Device(Results& results) {
  cudaStream_t streams[4];
  for (cudaStream_t& stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t forked, left_done, right_done;
  for (cudaEvent_t* event : {&forked, &left_done, &right_done}) {
    CHECK_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  check::DeviceBuffer<uint32_t> values(std::vector<uint32_t>(kCount, 1)), top(kCount), left(kCount), right(kCount);
  CHECK_CUDA(cudaDeviceSynchronize());
  for (int round = 0; round < kRounds; ++round) {
    Affine<<<4, 128, 0, streams[0]>>>(values.get(), top.get(), 3, 0, true, 8);
    CHECK_CUDA(cudaEventRecord(forked, streams[0]));
    CHECK_CUDA(cudaStreamWaitEvent(streams[1], forked, 0));
    CHECK_CUDA(cudaStreamWaitEvent(streams[2], forked, 0));
    Affine<<<4, 128, 0, streams[1]>>>(top.get(), left.get(), 5, 1, false, 12);
    Affine<<<4, 128, 0, streams[2]>>>(top.get(), right.get(), 7, 2, false, 2);
    CHECK_CUDA(cudaEventRecord(left_done, streams[1]));
    CHECK_CUDA(cudaEventRecord(right_done, streams[2]));
    CHECK_CUDA(cudaStreamWaitEvent(streams[0], left_done, 0));
    CHECK_CUDA(cudaStreamWaitEvent(streams[0], right_done, 0));
    Xor<<<4, 128, 0, streams[0]>>>(left.get(), right.get(), values.get());
    CHECK_LAUNCH();
  }
  CHECK_CUDA(cudaStreamSynchronize(streams[0]));
  results.Add("diamond", values.Download());

  check::DeviceBuffer<uint32_t> chain(std::vector<uint32_t>(kCount, 9));
  CHECK_CUDA(cudaDeviceSynchronize());
  for (int hop = 0; hop < kHops; ++hop) {
    // The event is destroyed while it is still waited for, which CUDA allows.
    cudaEvent_t arrived;
    CHECK_CUDA(cudaEventCreate(&arrived));
    Affine<<<4, 128, 0, streams[hop % 4]>>>(chain.get(), chain.get(), 2 * hop + 3, hop, true, hop % 3 * 5);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaEventRecord(arrived, streams[hop % 4]));
    CHECK_CUDA(cudaStreamWaitEvent(streams[(hop + 1) % 4], arrived, 0));
    CHECK_CUDA(cudaEventDestroy(arrived));
  }
  CHECK_CUDA(cudaStreamSynchronize(streams[kHops % 4]));
  results.Add("chain", chain.Download());
  for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
  for (cudaEvent_t event : {forked, left_done, right_done}) CHECK_CUDA(cudaEventDestroy(event));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
