// cudaHostRegister in all the places where programs use it: in the middle of the heap while other threads write to the
// neighbours on the same pages, static arrays, files in /dev/shm that are mapped twice and have no name any more;
// kernels that read and write it in place; a fork meanwhile; and the errors of registering twice or in part.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 30011, kRounds = 40;

uint32_t static_values[kCount];

uint32_t Step(uint32_t value, uint32_t i) { return value * 2654435761u + i; }

std::vector<uint32_t> Source(int seed) { return check::RandomIntegers<uint32_t>(kCount, seed); }
std::vector<uint32_t> Stepped(int seed, int times) {
  std::vector<uint32_t> values = Source(seed);
  for (int t = 0; t < times; ++t) {
    for (uint32_t i = 0; i < kCount; ++i) values[i] = Step(values[i], i);
  }
  return values;
}

void Reference(Results& results) {
  results.Add("heap", Stepped(1, kRounds));
  results.AddValue("lost writes of neighbours", 0u);
  results.Add("static", Stepped(2, 1));
  results.Add("file, its other mapping", Stepped(3, 1));
  results.Add("file, after the end", Stepped(3, 1));
  results.Add("child's view", Stepped(4, 1));
  results.Add("parent's view", Stepped(4, 2));
  results.Add("codes",
              std::vector<int>{cudaErrorHostMemoryAlreadyRegistered, cudaErrorHostMemoryAlreadyRegistered,
                               cudaErrorHostMemoryNotRegistered, cudaErrorInvalidValue, cudaErrorInvalidValue});
  results.Add("pointers", std::vector<uint32_t>(5, 1));
}

__global__ void StepAll(uint32_t* values) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) values[i] = values[i] * 2654435761u + i;
}

uint32_t* DevicePointer(uint32_t* host) {
  void* device = nullptr;
  CHECK_CUDA(cudaHostGetDevicePointer(&device, host, 0));
  return static_cast<uint32_t*>(device);
}

void StepInPlace(uint32_t* host) {
  StepAll<<<(kCount + 255) / 256, 256>>>(DevicePointer(host));
  CHECK_LAUNCH();
  CHECK_CUDA(cudaDeviceSynchronize());
}

void Fill(uint32_t* to, int seed) {
  const std::vector<uint32_t> values = Source(seed);
  memcpy(to, values.data(), kCount * sizeof(uint32_t));
}

// [front neighbour][values][back neighbour] without a gap: two threads count in the neighbours all the time.
void Heap(Results& results) {
  std::vector<uint32_t> block(kCount + 128);
  uint32_t* values = block.data() + 64;
  Fill(values, 1);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> expected[2] = {};
  const auto count = [&](int which) {
    volatile uint32_t* mine = which == 0 ? values - 1 : values + kCount;
    uint32_t written = 0;
    while (!stop) {
      *mine = *mine + 1;
      ++written;
    }
    expected[which] = written;
  };
  std::thread front(count, 0), back(count, 1);
  for (int round = 0; round < kRounds; ++round) {
    CHECK_CUDA(cudaHostRegister(values, kCount * sizeof(uint32_t), cudaHostRegisterDefault));
    StepInPlace(values);
    CHECK_CUDA(cudaHostUnregister(values));
  }
  stop = true;
  front.join();
  back.join();
  uint32_t lost = static_cast<uint32_t>(expected[0]) - values[-1] + static_cast<uint32_t>(expected[1]) - values[kCount];
  results.Add("heap", values, kCount);
  results.AddValue("lost writes of neighbours", lost);
}

void Static(Results& results) {
  Fill(static_values, 2);
  CHECK_CUDA(cudaHostRegister(static_values, sizeof(static_values), cudaHostRegisterMapped));
  StepInPlace(static_values);
  CHECK_CUDA(cudaHostUnregister(static_values));
  results.Add("static", static_values, kCount);
}

void File(Results& results) {
  constexpr size_t kBytes = (kCount * sizeof(uint32_t) + 4095) / 4096 * 4096;
  const std::string name = "/tally-program-" + std::to_string(getpid());
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 || ftruncate(fd, kBytes) != 0) check::Fail("no shared memory file");
  void* one = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void* other = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  shm_unlink(name.c_str());
  if (one == MAP_FAILED || other == MAP_FAILED) check::Fail("cannot map the file");
  auto* values = static_cast<uint32_t*>(one);
  Fill(values, 3);
  CHECK_CUDA(cudaHostRegister(values, kBytes, cudaHostRegisterPortable));
  close(fd);
  StepInPlace(values);
  results.Add("file, its other mapping", static_cast<uint32_t*>(other), kCount);
  CHECK_CUDA(cudaHostUnregister(values));
  results.Add("file, after the end", values, kCount);
  munmap(one, kBytes);
  munmap(other, kBytes);
}

// The child gets a copy of the moment of the fork, and what it writes is its own.
void Fork(Results& results) {
  std::vector<uint32_t> values(kCount);
  Fill(values.data(), 4);
  CHECK_CUDA(cudaHostRegister(values.data(), kCount * sizeof(uint32_t), cudaHostRegisterDefault));
  StepInPlace(values.data());
  int to_child[2], from_child[2];
  if (pipe(to_child) != 0 || pipe(from_child) != 0) check::Fail("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    char go;
    if (read(to_child[0], &go, 1) != 1) _exit(1);
    std::vector<uint32_t> seen = values;
    memset(values.data(), 0xff, kCount * sizeof(uint32_t));
    size_t size = seen.size() * sizeof(uint32_t);
    for (size_t at = 0; at < size;) {
      const ssize_t written = write(from_child[1], reinterpret_cast<char*>(seen.data()) + at, size - at);
      if (written <= 0) _exit(1);
      at += static_cast<size_t>(written);
    }
    _exit(0);
  }
  close(from_child[1]);
  StepInPlace(values.data());  // before the child looks
  if (write(to_child[1], "", 1) != 1) check::Fail("no pipe");
  std::vector<uint32_t> seen(kCount);
  const size_t size = seen.size() * sizeof(uint32_t);
  for (size_t at = 0; at < size;) {
    const ssize_t got = read(from_child[0], reinterpret_cast<char*>(seen.data()) + at, size - at);
    if (got <= 0) check::Fail("the child ended early");
    at += static_cast<size_t>(got);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) check::Fail("the child failed");
  results.Add("child's view", seen);
  results.Add("parent's view", values);
  CHECK_CUDA(cudaHostUnregister(values.data()));
}

void Errors(Results& results) {
  constexpr size_t kBytes = 64 * 1024;
  char* pinned;
  CHECK_CUDA(cudaMallocHost(&pinned, kBytes));
  auto* bytes = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK_CUDA(cudaHostRegister(bytes + 100, 10000, cudaHostRegisterDefault));
  std::vector<int> codes;
  codes.push_back(cudaHostRegister(bytes + 100, 10000, cudaHostRegisterDefault));
  codes.push_back(cudaHostRegister(bytes + 5000, 10000, cudaHostRegisterDefault));
  codes.push_back(cudaHostUnregister(bytes + 50000));
  codes.push_back(cudaHostRegister(nullptr, 100, cudaHostRegisterDefault));
  codes.push_back(cudaHostRegister(bytes + 30000, 0, cudaHostRegisterDefault));
  std::vector<uint32_t> pointers;
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, bytes + 600));
  pointers.push_back(attributes.type == cudaMemoryTypeHost);
  pointers.push_back(attributes.hostPointer == bytes + 600);
  pointers.push_back(attributes.devicePointer ==
                     reinterpret_cast<char*>(DevicePointer(reinterpret_cast<uint32_t*>(bytes + 100))) + 500);
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, attributes.devicePointer));
  pointers.push_back(attributes.hostPointer == bytes + 600);
  CHECK_CUDA(cudaHostUnregister(bytes + 100));
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, bytes + 600));
  pointers.push_back(attributes.type == cudaMemoryTypeUnregistered);
  cudaGetLastError();
  munmap(bytes, kBytes);
  CHECK_CUDA(cudaFreeHost(pinned));
  results.Add("codes", codes);
  results.Add("pointers", pointers);
}

void Device(Results& results) {
  Heap(results);
  Static(results);
  File(results);
  Fork(results);
  Errors(results);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
