// A timer's signal every half millisecond, handled without SA_RESTART, while the program initialises CUDA, allocates,
// copies, launches and waits: no call may fail or be done twice because a system call was interrupted.
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <thread>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 1 << 20, kRounds = 25;

void Reference(Results& results) {
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i * 5 + kRounds;
  results.Add("values", values);
  results.AddValue<int>("host functions", kRounds);
  for (int t = 0; t < 3; ++t) results.AddValue<int>("thread", 40);
  results.AddValue<int>("there were signals", 1);
}

std::atomic<int> num_signals{0};

__global__ void Increment(uint32_t* values) { values[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
__global__ void Add(int* word) { *word += 1; }

void Device(Results& results) {
  struct sigaction action = {};
  action.sa_handler = [](int) { num_signals.fetch_add(1); };
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, nullptr);

  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i * 5;
  check::DeviceBuffer<uint32_t> device(values);
  uint32_t* pinned = nullptr;
  CHECK_CUDA(cudaMallocHost(&pinned, kCount * sizeof(uint32_t)));
  std::atomic<int> num_called{0};
  for (int round = 0; round < kRounds; ++round) {
    Increment<<<kCount / 256, 256>>>(device.get());
    CHECK_LAUNCH();
    CHECK_CUDA(cudaLaunchHostFunc(
        nullptr, [](void* called) { static_cast<std::atomic<int>*>(called)->fetch_add(1); }, &num_called));
    CHECK_CUDA(cudaMemcpyAsync(pinned, device.get(), kCount * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaStreamSynchronize(nullptr));
    memcpy(values.data(), pinned, kCount * sizeof(uint32_t));
    device.Upload(values);
  }
  results.Add("values", device.Download());
  results.AddValue<int>("host functions", num_called.load());

  // Signals for threads that wait for their first call's connection and for synchronisations.
  std::vector<int> totals(3, 0);
  std::vector<std::thread> threads;
  std::atomic<int> num_ended{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      check::DeviceBuffer<int> word(1);
      word.Zero();
      for (int i = 0; i < 40; ++i) {
        Add<<<1, 1>>>(word.get());
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
      }
      totals[t] = word.Download()[0];
      num_ended.fetch_add(1);
    });
  }
  std::vector<pthread_t> handles;
  for (std::thread& thread : threads) handles.push_back(thread.native_handle());
  while (num_ended.load() < 3) {
    for (pthread_t handle : handles) pthread_kill(handle, SIGALRM);  // they exist until they are joined
    usleep(200);
  }
  for (std::thread& thread : threads) thread.join();
  for (int total : totals) results.AddValue<int>("thread", total);
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  results.AddValue<int>("there were signals", num_signals.load() > 10);
  CHECK_CUDA(cudaFreeHost(pinned));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
