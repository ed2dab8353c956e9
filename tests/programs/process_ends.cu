// The ways in which a process with work in flight ends: each in a process of its own, which must end at once and as it
// would without CUDA; afterwards the first process works on.
//
// Natively exit() is no time for calls: what threads that are in the driver meanwhile do to it is undefined ("CUDA
// calls during process termination"), so those ways are tried and said, but only under Tally they must be as expected.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/programs/child_case.h"
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

struct Ending {
  const char* name;
  int exit_status;     // or 1000 + signal
  const char* output;  // on stdout
  bool calls_during_exit = false;
};

constexpr Ending kEndings[] = {
    {"return", 5, ""},
    {"exit", 6, "atexit 7\n"},
    {"_exit", 7, ""},
    {"quick_exit", 8, "at_quick_exit 7\n"},
    {"abort", 1000 + SIGABRT, ""},
    {"SIGKILL", 1000 + SIGKILL, ""},
    {"SIGTERM", 1000 + SIGTERM, ""},
    {"exception", 1000 + SIGABRT, ""},
    {"exit from a thread while others launch", 9, "atexit 7\n", true},
    {"_exit from a thread while others launch", 10, ""},
    {"return while a thread launches", 11, "", true},
    {"main thread ends first", 13, "last thread 7\n"},
    {"threads end with work queued", 12, "sum 800\n"},
};

void Reference(Results& results) {
  for (const Ending& ending : kEndings) {
    results.AddValue<int>(ending.name, ending.exit_status);
    results.AddText(ending.name, ending.output);
    results.AddValue<int>("first process", 3);
  }
}

__global__ void Add(int* word, int value) { atomicAdd(word, value); }
__global__ void Store(int* word, int value) { *word = value; }

int* answer = nullptr;  // holds 7 on the device
int* word = nullptr;

int Answer() {
  int value = 0;
  CHECK_CUDA(cudaMemcpy(&value, answer, sizeof(value), cudaMemcpyDeviceToHost));
  return value;
}

void QueueWork() {
  for (int i = 0; i < 200; ++i) Add<<<4, 32>>>(word, 1);
  CHECK_LAUNCH();
}

void Say(const char* what) {
  printf("%s %d\n", what, Answer());
  fflush(stdout);
}

// Until the process is gone, or its driver refuses because it is going. Driver calls: the runtime's own end, in exit(),
// pulls the ground from under threads that still call the runtime.
struct Forever {
  decltype(cuLaunchKernel)* launch = DRIVER_ENTRY(cuLaunchKernel);
  decltype(cuStreamSynchronize)* synchronize = DRIVER_ENTRY(cuStreamSynchronize);
  decltype(cuCtxSetCurrent)* set_current = DRIVER_ENTRY(cuCtxSetCurrent);
  CUcontext context = nullptr;
  cudaFunction_t add = nullptr;
  cudaStream_t streams[4] = {};

  Forever() {
    CHECK_DRIVER(DRIVER_ENTRY(cuCtxGetCurrent)(&context));
    CHECK_CUDA(cudaGetFuncBySymbol(&add, reinterpret_cast<const void*>(Add)));
    for (cudaStream_t& stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void Run(int thread) const {
    int value = 1;
    void* parameters[] = {&word, &value};
    if (set_current(context) != CUDA_SUCCESS) return;
    while (launch(add, 1, 1, 1, 32, 1, 1, 0, streams[thread], parameters, nullptr) == CUDA_SUCCESS &&
           synchronize(streams[thread]) == CUDA_SUCCESS) {
    }
  }
};

int EndAs(const std::string& name) {
  CHECK_CUDA(cudaMalloc(&answer, sizeof(int)));
  CHECK_CUDA(cudaMalloc(&word, sizeof(int)));
  CHECK_CUDA(cudaMemset(word, 0, sizeof(int)));
  Store<<<1, 1>>>(answer, 7);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaDeviceSynchronize());
  QueueWork();

  if (name == "return") return 5;
  if (name == "exit" || name == "exit from a thread while others launch") atexit([] { Say("atexit"); });
  if (name == "exit") exit(6);
  if (name == "_exit") _exit(7);
  if (name == "quick_exit") {
    at_quick_exit([] { Say("at_quick_exit"); });
    quick_exit(8);
  }
  if (name == "abort") abort();
  if (name == "SIGKILL") raise(SIGKILL);
  if (name == "SIGTERM") raise(SIGTERM);
  if (name == "exception") {
    fclose(stderr);  // "terminate called" is expected here
    throw std::runtime_error("nobody catches this");
  }
  if (name == "exit from a thread while others launch" || name == "_exit from a thread while others launch") {
    static const Forever forever;
    for (int t = 0; t < 4; ++t) std::thread([t] { forever.Run(t); }).detach();
    std::thread([&] {
      QueueWork();
      if (name[0] == '_') _exit(10);
      exit(9);
    }).join();
  }
  if (name == "return while a thread launches") {
    static const Forever forever;
    std::thread([] { forever.Run(0); }).detach();
    usleep(20000);
    return 11;
  }
  if (name == "main thread ends first") {
    std::thread([] {
      usleep(50000);
      Say("last thread");
      exit(13);  // the driver's own threads would keep the process
    }).detach();
    pthread_exit(nullptr);
  }
  if (name == "threads end with work queued") {
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemset(word, 0, sizeof(int)));
    for (int t = 0; t < 8; ++t) {
      std::thread([] {
        for (int i = 0; i < 100; ++i) Add<<<1, 1>>>(word, 1);
        CHECK_LAUNCH();
      }).join();
    }
    int sum = 0;
    CHECK_CUDA(cudaMemcpy(&sum, word, sizeof(sum), cudaMemcpyDeviceToHost));
    printf("sum %d\n", sum);
    return 12;
  }
  return 100;
}

bool IsTally() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library != nullptr && dlsym(library, "tally_shim_marker") != nullptr;
}

void Device(Results& results) {
  check::DeviceBuffer<int> own(1);
  for (const Ending& ending : kEndings) {
    const bool is_undefined = ending.calls_during_exit && !IsTally();
    check::ChildResult child = check::RunCase(ending.name, is_undefined ? 5 : 15);
    if (is_undefined) {
      printf("%s: ended with %d and '%s'\n", ending.name, child.exit_status, child.output.c_str());
      child = {ending.output, ending.exit_status};
    }
    results.AddValue<int>(ending.name, child.exit_status);
    results.AddText(ending.name, child.output);
    own.Zero();
    Add<<<1, 3>>>(own.get(), 1);
    CHECK_LAUNCH();
    results.AddValue<int>("first process", own.Download()[0]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return EndAs(argv[2]);
  return check::RunProgram(argc, argv, Reference, Device);
}
