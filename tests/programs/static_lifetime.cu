// CUDA used before main begins and after it ended: a static object allocates in its constructor and frees in its
// destructor, a thread_local one at the end of its thread, and a function of atexit still copies.
#include <thread>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 1000;

bool reference_only = false;
int* late_copy_source = nullptr;

__global__ void Fill(int* values, int start) { values[blockIdx.x * blockDim.x + threadIdx.x] = start + threadIdx.x; }

class Early {
 public:
  Early() {
    FILE* command_line = fopen("/proc/self/cmdline", "r");
    char arguments[4096] = "";
    size_t length = command_line ? fread(arguments, 1, sizeof(arguments) - 1, command_line) : 0;
    if (command_line) fclose(command_line);
    for (size_t i = 0; i < length; ++i) {
      if (arguments[i] == '\0') arguments[i] = ' ';
    }
    reference_only = strstr(arguments, " --reference") != nullptr;
    if (!reference_only) CHECK_CUDA(cudaMalloc(&values, kCount * sizeof(int)));
  }
  ~Early() {
    // After main: the runtime may already be unloading, which is an answer too; a crash or a hang is not.
    if (!reference_only) cudaFree(values);
  }
  int* values = nullptr;
};
Early early;

struct OfThread {
  int* values = nullptr;
  ~OfThread() { cudaFree(values); }
};
thread_local OfThread of_thread;

void CopyLate() {
  int value = 0;
  cudaMemcpy(&value, late_copy_source, sizeof(value), cudaMemcpyDeviceToHost);
}

void Reference(Results& results) {
  std::vector<int> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = 7 + i;
  results.Add("allocated before main", values);
  for (int t = 0; t < 3; ++t) results.AddValue<int>("thread", 100 * t + 9);
}

void Device(Results& results) {
  late_copy_source = early.values;
  atexit(CopyLate);
  Fill<<<1, kCount>>>(early.values, 7);
  CHECK_LAUNCH();
  std::vector<int> values(kCount);
  CHECK_CUDA(cudaMemcpy(values.data(), early.values, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  results.Add("allocated before main", values);
  for (int t = 0; t < 3; ++t) {
    int value = 0;
    std::thread([&value, t] {
      CHECK_CUDA(cudaMalloc(&of_thread.values, 10 * sizeof(int)));
      Fill<<<1, 10>>>(of_thread.values, 100 * t);
      CHECK_LAUNCH();
      CHECK_CUDA(cudaMemcpy(&value, of_thread.values + 9, sizeof(int), cudaMemcpyDeviceToHost));
    }).join();
    results.AddValue("thread", value);
  }
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
