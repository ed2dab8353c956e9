// Kernels that wait for kernels launched later by another thread, while the first thread waits in a call: what programs
// of several ranks do all the time. In two streams of one device, and on two devices while memory of the first is
// freed. With one device the second part uses it twice and waits without freeing.
#include <atomic>
#include <thread>

#include "tests/programs/device_count.h"

using check::Results;

namespace {

constexpr int kRounds = 5;

void Reference(Results& results) {
  results.Add("two streams", std::vector<uint32_t>(kRounds, 7));
  results.Add("two devices", std::vector<uint32_t>(kRounds, 7));
}

__global__ void Await(volatile uint32_t* flag, uint32_t* seen) {
  while (*flag == 0) {
  }
  *seen = *flag;
}
__global__ void Raise(volatile uint32_t* flag) { *flag = 7; }

struct Shared {
  uint32_t* flag;  // pinned, so that every device sees it
  uint32_t* seen;
};

// `wait` is what the first thread does while its kernel waits.
template <typename Wait>
uint32_t Round(const Shared& shared, int device, int other, cudaStream_t stream, cudaStream_t other_stream, Wait wait) {
  *static_cast<volatile uint32_t*>(shared.flag) = 0;
  *static_cast<volatile uint32_t*>(shared.seen) = 0;
  std::atomic<bool> is_launched{false};
  std::thread second([&] {
    CHECK_CUDA(cudaSetDevice(other));
    while (!is_launched) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the first is in its call by now
    Raise<<<1, 1, 0, other_stream>>>(shared.flag);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaStreamSynchronize(other_stream));
  });
  CHECK_CUDA(cudaSetDevice(device));
  Await<<<1, 1, 0, stream>>>(shared.flag, shared.seen);
  CHECK_LAUNCH();
  is_launched = true;
  wait();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  second.join();
  return *static_cast<volatile uint32_t*>(shared.seen);
}

void Device(Results& results) {
  const int num_devices = check::CountDevices();
  const int other = num_devices > 1 ? 1 : 0;
  Shared shared;
  uint32_t* pinned;
  CHECK_CUDA(cudaHostAlloc(&pinned, 8192, cudaHostAllocPortable | cudaHostAllocMapped));
  shared.flag = pinned;
  shared.seen = pinned + 1024;
  cudaStream_t streams[2], other_stream;
  for (cudaStream_t& stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaSetDevice(other));
  CHECK_CUDA(cudaStreamCreateWithFlags(&other_stream, cudaStreamNonBlocking));
  // Everything is loaded everywhere before anything spins.
  *shared.flag = 1;
  for (const int device : {0, other}) {
    CHECK_CUDA(cudaSetDevice(device));
    Await<<<1, 1>>>(shared.flag, shared.seen);
    Raise<<<1, 1>>>(shared.flag);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  std::vector<uint32_t> seen;
  for (int round = 0; round < kRounds; ++round) {
    seen.push_back(Round(shared, 0, 0, streams[0], streams[1], [&] { CHECK_CUDA(cudaStreamSynchronize(streams[0])); }));
  }
  results.Add("two streams", seen);
  seen.clear();
  for (int round = 0; round < kRounds; ++round) {
    CHECK_CUDA(cudaSetDevice(0));
    void* memory;
    CHECK_CUDA(cudaMalloc(&memory, 1 << 20));
    seen.push_back(Round(shared, 0, other, streams[0], other_stream, [&] {
      if (other != 0) CHECK_CUDA(cudaFree(memory));
    }));
    if (other == 0) CHECK_CUDA(cudaFree(memory));
  }
  results.Add("two devices", seen);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
