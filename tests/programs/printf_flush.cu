// When device printf reaches the program's stdout: by the end of every call that waits, in the right place among the
// program's own lines; at most once if the process ends first; and without harm where stdout is closed. Each case is a
// process of its own whose stdout is read.
#include <chrono>
#include <thread>

#include "tests/programs/child_case.h"

using check::Results;

namespace {

struct Case {
  const char* name;
  const char* output;
};
constexpr Case kCases[] = {
    {"stream", "host 1\ndevice 1\nhost 2\n"},
    {"event", "host 1\ndevice 1\nhost 2\n"},
    {"device", "host 1\ndevice 1\nhost 2\n"},
    {"copy", "host 1\ndevice 1\nhost 2\n"},
    {"reset", "host 1\ndevice 1\nhost 2\n"},
    {"other thread", "host 1\ndevice 1\nhost 2\n"},
    {"two kernels", "host 1\ndevice 1\ndevice 2\nhost 2\n"},
    {"graph", "host 1\ndevice 3\ndevice 3\nhost 2\n"},
    {"_exit", "host 1\n"},
    {"closed stdout", ""},
};

void Reference(Results& results) {
  for (const Case& one : kCases) {
    results.AddText(one.name, one.output);
    results.AddValue<int>(one.name, 0);
  }
}

__global__ void Print(int number) { printf("device %d\n", number); }

void PrintOnce(cudaStream_t stream = nullptr) {
  Print<<<1, 1, 0, stream>>>(1);
  CHECK_LAUNCH();
}

int RunOne(const std::string& name) {
  // Loaded before the program's first line: loading may wait, and print.
  cudaFuncAttributes attributes;
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, Print));
  cudaStream_t stream;
  cudaEvent_t event;
  int* word = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  CHECK_CUDA(cudaEventCreate(&event));
  CHECK_CUDA(cudaMalloc(&word, sizeof(*word)));
  CHECK_CUDA(cudaDeviceSynchronize());
  if (name == "closed stdout") {
    close(STDOUT_FILENO);
    PrintOnce();
    CHECK_CUDA(cudaDeviceSynchronize());
    _exit(0);
  }
  printf("host 1\n");
  if (name == "stream") {
    PrintOnce(stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
  } else if (name == "event") {
    PrintOnce(stream);
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(cudaEventSynchronize(event));
  } else if (name == "device") {
    PrintOnce(stream);
    CHECK_CUDA(cudaDeviceSynchronize());
  } else if (name == "copy") {
    PrintOnce();
    int value = 0;
    CHECK_CUDA(cudaMemcpy(&value, word, sizeof(value), cudaMemcpyDeviceToHost));
  } else if (name == "reset") {
    PrintOnce();
    CHECK_CUDA(cudaDeviceReset());
  } else if (name == "other thread") {
    PrintOnce(stream);
    std::thread([stream] { CHECK_CUDA(cudaStreamSynchronize(stream)); }).join();
  } else if (name == "two kernels") {
    PrintOnce(stream);
    Print<<<1, 1, 0, stream>>>(2);
    CHECK_CUDA(cudaStreamSynchronize(stream));
  } else if (name == "graph") {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    Print<<<1, 1, 0, stream>>>(3);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  } else if (name == "_exit") {
    fflush(stdout);
    PrintOnce();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    _exit(0);
  }
  printf("host 2\n");
  fflush(stdout);
  _exit(0);
}

void Device(Results& results) {
  for (const Case& one : kCases) {
    check::ChildResult child = check::RunCase(one.name);
    // Nothing waited for the kernel. "Not flushed" is all that the documentation promises then; the native driver does
    // write it sometimes.
    if (strcmp(one.name, "_exit") == 0 && child.output == "host 1\ndevice 1\n") {
      printf("_exit: the device's line came without a wait\n");
      child.output = one.output;
    }
    results.AddText(one.name, child.output);
    results.AddValue<int>(one.name, child.exit_status);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return RunOne(argv[2]);
  return check::RunProgram(argc, argv, Reference, Device);
}
