// A process that forks again and again while its threads launch and copy: children end by _exit, close every
// descriptor, scribble over what they inherited, start another program, or fork themselves; the threads' results must
// be exact. One more child asks the driver for everything it may ask: "not initialized" each time, also from cuInit.
#include <fcntl.h>

#include <atomic>
#include <thread>

#include "tests/programs/child_case.h"
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr int kHostThreads = 4, kForks = 15, kCount = 1000;

void Reference(Results& results) {
  results.Add("driver in a child", std::vector<int>(8, CUDA_ERROR_NOT_INITIALIZED));
  results.AddValue<int>("children that ended as they should", kForks);
  results.AddText("child that called exec", "46\n");
  for (int t = 0; t < kHostThreads; ++t) results.AddValue<int>("wrong values", 0);
  results.AddValue<int>("afterwards", 11);
}

__global__ void Fill(uint32_t* values, uint32_t start) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) values[i] = start + i;
}
__global__ void Add(int* word, int value) { *word += value; }

int AddInNewProcess() {
  check::DeviceBuffer<int> word(std::vector<int>{23});
  Add<<<1, 1>>>(word.get(), 23);
  CHECK_LAUNCH();
  printf("%d\n", word.Download()[0]);
  return 0;
}

// Rounds until told to stop; how many values were wrong.
int Work(uint32_t thread, const std::atomic<bool>& stop) {
  uint32_t* pinned = nullptr;
  cudaStream_t stream;
  check::DeviceBuffer<uint32_t> device(kCount);
  std::vector<uint32_t> pageable(kCount);
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMallocHost(&pinned, kCount * sizeof(uint32_t)));
  int wrong = 0;
  for (uint32_t round = 0; round < 3 || !stop.load(); ++round) {
    const uint32_t start = thread * 1000000 + round;
    Fill<<<(kCount + 127) / 128, 128, 0, stream>>>(device.get(), start);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpyAsync(pinned, device.get(), kCount * sizeof(uint32_t), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(
        cudaMemcpyAsync(pageable.data(), device.get(), kCount * sizeof(uint32_t), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (uint32_t i = 0; i < kCount; ++i) wrong += (pinned[i] != start + i) + (pageable[i] != start + i);
  }
  CHECK_CUDA(cudaFreeHost(pinned));
  CHECK_CUDA(cudaStreamDestroy(stream));
  return wrong;
}

// What a child does; only calls that are safe after a fork of a process with threads.
[[noreturn]] void EndChild(int kind) {
  if (kind % 5 == 1) {
    for (int fd = 3; fd < 1024; ++fd) close(fd);
  } else if (kind % 5 == 2) {
    for (int fd = 3; fd < 64; ++fd) {
      // Whatever was inherited there is now something else in the child.
      int null = open("/dev/null", O_RDWR);
      if (null >= 0 && null != fd) dup2(null, fd);
    }
  } else if (kind % 5 == 3) {
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(30);
    int status = 0;
    if (waitpid(grandchild, &status, 0) != grandchild || !WIFEXITED(status) || WEXITSTATUS(status) != 30) _exit(99);
  } else if (kind % 5 == 4) {
    execl("/bin/sh", "sh", "-c", "exit \"$1\"", "sh", std::to_string(kind).c_str(), static_cast<char*>(nullptr));
    _exit(98);
  }
  _exit(kind);
}

// In a forked child: eight calls of the driver, by the parent's function pointers.
std::vector<int> CodesInChild() {
  auto* init = DRIVER_ENTRY(cuInit);
  auto* count_of_devices = DRIVER_ENTRY(cuDeviceGetCount);
  auto* get_device = DRIVER_ENTRY(cuDeviceGet);
  auto* current = DRIVER_ENTRY(cuCtxGetCurrent);
  auto* synchronize = DRIVER_ENTRY(cuCtxSynchronize);
  auto* allocate = DRIVER_ENTRY(cuMemAlloc);
  auto* query = DRIVER_ENTRY(cuStreamQuery);
  auto* retain = DRIVER_ENTRY(cuDevicePrimaryCtxRetain);
  int ends[2];
  if (pipe(ends) != 0) check::Fail("pipe: %s", strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    int count;
    CUdevice device;
    CUcontext context;
    CUdeviceptr address;
    const int codes[8] = {init(0),       count_of_devices(&count), get_device(&device, 0), current(&context),
                          synchronize(), allocate(&address, 100),  query(nullptr),         retain(&context, 0)};
    _exit(write(ends[1], codes, sizeof(codes)) == sizeof(codes) ? 0 : 1);
  }
  std::vector<int> codes(8, -1);
  if (read(ends[0], codes.data(), 8 * sizeof(int)) != 8 * sizeof(int)) check::Fail("the child said nothing");
  waitpid(child, nullptr, 0);
  return codes;
}

void Device(Results& results) {
  check::DeviceBuffer<int> word(std::vector<int>{4});
  results.Add("driver in a child", CodesInChild());

  std::atomic<bool> stop{false};
  std::vector<int> wrong(kHostThreads, -1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kHostThreads; ++t) threads.emplace_back([&, t] { wrong[t] = Work(t, stop); });
  int as_they_should = 0;
  for (int kind = 0; kind < kForks; ++kind) {
    const pid_t child = fork();
    if (child < 0) check::Fail("fork: %s", strerror(errno));
    if (child == 0) EndChild(kind);
    int status = 0;
    if (waitpid(child, &status, 0) != child) check::Fail("waitpid: %s", strerror(errno));
    as_they_should += WIFEXITED(status) && WEXITSTATUS(status) == kind;
  }
  results.AddValue<int>("children that ended as they should", as_they_should);
  results.AddText("child that called exec", check::RunCase("add").output);
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kHostThreads; ++t) results.AddValue<int>("wrong values", wrong[t]);
  Add<<<1, 1>>>(word.get(), 7);
  CHECK_LAUNCH();
  results.AddValue<int>("afterwards", word.Download()[0]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return AddInNewProcess();
  return check::RunProgram(argc, argv, Reference, Device);
}
