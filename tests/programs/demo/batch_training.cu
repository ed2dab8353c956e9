// The best-effort half of the demo: a "training" that only wants to get on. Each iteration runs three kernels over the
// whole state (forward, backward, update); two iterations are in flight. The state depends on nothing but the number of
// iterations, so its checksum shows that sharing, slicing or stopping the kernels did no harm.
//
//   batch_training [--seconds 5] [--iterations 0 = until time is up] [--size 4096] [--work 32] [--block 128]
//
// Sizes suit a GPU in software; on a real one try --size 4194304 --work 2000.
#include <algorithm>
#include <chrono>

#include "tests/programs/demo/options.h"

namespace {

using Clock = std::chrono::steady_clock;

__host__ __device__ inline uint32_t Forward(uint32_t x, uint32_t work) {
  for (uint32_t i = 0; i < work; ++i) x = (x ^ (x >> 15)) * 0x2c1b3c6du + i;
  return x;
}
__host__ __device__ inline uint32_t Backward(uint32_t x, uint32_t activation, uint32_t work) {
  for (uint32_t i = 0; i < work; ++i) activation = activation * 1664525u + (x ^ i);
  return activation;
}
__host__ __device__ inline uint32_t Update(uint32_t x, uint32_t gradient, uint32_t work) {
  for (uint32_t i = 0; i < work; ++i) x += (gradient >> (i & 15)) ^ x << 1;
  return x;
}

__global__ void ForwardKernel(const uint32_t* state, uint32_t* activations, uint32_t size, uint32_t work) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) activations[i] = Forward(state[i], work);
}
__global__ void BackwardKernel(const uint32_t* state, uint32_t* activations, uint32_t size, uint32_t work) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) activations[i] = Backward(state[i], activations[i], work);
}
__global__ void UpdateKernel(uint32_t* state, const uint32_t* gradients, uint32_t size, uint32_t work) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) state[i] = Update(state[i], gradients[i], work);
}

uint32_t Start(uint32_t i) { return i * 2654435761u + 1; }

// The host follows a few elements through all iterations.
bool IsCorrect(const std::vector<uint32_t>& state, uint64_t iterations, uint32_t work) {
  // About 0.2 s of the host's time at most; at least one element.
  uint64_t steps = std::max<uint64_t>(1, iterations * work * 3);
  uint32_t num_samples = static_cast<uint32_t>(std::min<uint64_t>({64, state.size(), 100000000 / steps + 1}));
  for (uint32_t sample = 0; sample < num_samples; ++sample) {
    uint32_t i = static_cast<uint32_t>(uint64_t{sample} * (state.size() - 1) / std::max(1u, num_samples - 1));
    uint32_t x = Start(i);
    for (uint64_t k = 0; k < iterations; ++k) x = Update(x, Backward(x, Forward(x, work), work), work);
    if (x != state[i]) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  demo::Options options =
      demo::ParseOptions(argc, argv, {{"seconds", 5}, {"iterations", 0}, {"size", 4096}, {"work", 32}, {"block", 128}});
  uint32_t size = static_cast<uint32_t>(options["size"]), work = static_cast<uint32_t>(options["work"]);
  uint32_t block = static_cast<uint32_t>(options["block"]);
  if (size == 0 || block == 0 || block > 1024) check::Fail("--size must be positive, --block 1 to 1024");
  uint32_t grid = (size + block - 1) / block;

  std::vector<uint32_t> state(size);
  for (uint32_t i = 0; i < size; ++i) state[i] = Start(i);
  check::DeviceBuffer<uint32_t> state_device(state), activations(size);
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t finished[2];
  for (cudaEvent_t& event : finished)
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  CHECK_CUDA(cudaDeviceSynchronize());

  Clock::time_point begin = Clock::now();
  auto end = begin + std::chrono::duration<double>(options["seconds"]);
  uint64_t iterations = 0, wanted = static_cast<uint64_t>(options["iterations"]);
  while (wanted > 0 ? iterations < wanted : Clock::now() < end) {
    if (iterations >= 2) CHECK_CUDA(cudaEventSynchronize(finished[iterations % 2]));
    ForwardKernel<<<grid, block, 0, stream>>>(state_device.get(), activations.get(), size, work);
    BackwardKernel<<<grid, block, 0, stream>>>(state_device.get(), activations.get(), size, work);
    UpdateKernel<<<grid, block, 0, stream>>>(state_device.get(), activations.get(), size, work);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaEventRecord(finished[iterations % 2], stream));
    ++iterations;
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  state = state_device.Download();
  if (!IsCorrect(state, iterations, work))
    check::Fail("the state after %llu iterations is wrong", (unsigned long long)iterations);
  check::Checksum checksum;
  checksum.Add(state.data(), state.size() * sizeof(uint32_t));
  printf("batch_training: %llu iterations in %.2f s, %.2f iterations/s, checksum %016llx\n",
         (unsigned long long)iterations, seconds, iterations / seconds, (unsigned long long)checksum.value());
  printf(
      "{\"program\": \"batch_training\", \"iterations\": %llu, \"seconds\": %.4f, \"iterations_per_second\": %.4f, "
      "\"size\": %u, \"work\": %u, \"checksum\": \"%016llx\"}\n",
      (unsigned long long)iterations, seconds, iterations / seconds, size, work, (unsigned long long)checksum.value());
  return fflush(stdout) == 0 ? 0 : 1;
}
