// What the GPUs of this machine are to one another: what plans for several GPUs are made with, and what mirrors need.
// Plain CUDA: it knows nothing of Tally. Every transfer is checked.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/taskgraph/check.h"

namespace taskgraph {
namespace {

constexpr const char* kUsage = R"(gpu_links [--bytes B]
Prints a table: of GPU 0 with each other one, whether kernels may use the other's memory, atomics too, how quick copies,
loads and stores are, how long a word takes there and back; and whether another process, on the other GPU, gets memory
at an address that one on GPU 0 has. B: of a transfer (default 256 MiB). Status 1 if what arrives is wrong.
)";

constexpr int kRuns = 5, kBlocks = 264, kThreads = 512;
constexpr uint32_t kRounds = 2000;
// A word that never comes ends the kernel, not the machine.
constexpr uint32_t kMostLooks = 1u << 26;
constexpr size_t kReserved[] = {size_t{2} << 20, size_t{4} << 30};

__global__ void Fill(uint4* to, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    to[i] = make_uint4(seed + static_cast<uint32_t>(i), seed, seed ^ static_cast<uint32_t>(i), seed);
  }
}

// The sum of all that `Fill` made, of whichever GPU's memory.
__global__ void Sum(const uint4* from, size_t count, unsigned long long* sum) {
  unsigned long long found = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    const uint4 word = from[i];
    found += word.x + static_cast<unsigned long long>(word.y) + word.z + word.w;
  }
  atomicAdd(sum, found);
}

// Both ends of it at once, each on its GPU: `own` is this one's word, `other` the one that it writes.
__global__ void ThereAndBack(volatile uint32_t* own, volatile uint32_t* other, bool is_first, uint32_t* ended) {
  for (uint32_t round = 1; round <= kRounds; ++round) {
    if (is_first) *other = round;
    for (uint32_t looks = 0; *own < round; ++looks) {
      if (looks == kMostLooks) return;
    }
    if (!is_first) *other = round;
  }
  *ended = kRounds;
}

using std::chrono::steady_clock;

double Seconds(const std::function<void()>& work) {
  std::vector<double> times;
  for (int run = 0; run <= kRuns; ++run) {
    const auto begin = steady_clock::now();
    work();
    if (run > 0) times.push_back(std::chrono::duration<double>(steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

struct Gpu {
  explicit Gpu(int index, size_t num_bytes) : device(index) {
    Use();
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    Check(cudaMalloc(&memory, num_bytes), "cudaMalloc");
    Check(cudaMalloc(&arrived, num_bytes), "cudaMalloc");
    Check(cudaMalloc(&sum, sizeof *sum), "cudaMalloc");
    Check(cudaMalloc(&word, 2 * sizeof *word), "cudaMalloc");
  }
  void Use() const { Check(cudaSetDevice(device), "cudaSetDevice"); }
  void Await() const { Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

  int device;
  cudaStream_t stream{};
  uint4 *memory{}, *arrived{};
  unsigned long long* sum{};
  uint32_t* word{};  // and behind it: how many rounds it has had
};

unsigned long long SumOf(const Gpu& gpu, const uint4* memory, size_t count) {
  gpu.Use();
  unsigned long long found = 0;
  Check(cudaMemsetAsync(gpu.sum, 0, sizeof found, gpu.stream), "cudaMemsetAsync");
  Sum<<<kBlocks, kThreads, 0, gpu.stream>>>(memory, count, gpu.sum);
  Check(cudaMemcpyAsync(&found, gpu.sum, sizeof found, cudaMemcpyDeviceToHost, gpu.stream), "cudaMemcpyAsync");
  gpu.Await();
  return found;
}

void FillFrom(const Gpu& gpu, uint4* memory, size_t count, uint32_t seed) {
  gpu.Use();
  Fill<<<kBlocks, kThreads, 0, gpu.stream>>>(memory, count, seed);
  gpu.Await();
}

void Same(unsigned long long found, unsigned long long wanted, const char* what) {
  if (found != wanted) Fail(what, "something else arrived");
}

void CopyTo(const Gpu& to, const Gpu& from, size_t num_bytes) {
  from.Use();
  Check(cudaMemcpyPeerAsync(to.arrived, to.device, from.memory, from.device, num_bytes, from.stream),
        "cudaMemcpyPeerAsync");
}

void Show(const char* what, double value, const char* unit) { std::printf("| %s | %.1f %s |\n", what, value, unit); }

void ShowCopies(const Gpu& home, const Gpu& other, size_t num_bytes) {
  const size_t count = num_bytes / sizeof(uint4);
  FillFrom(home, home.memory, count, 7);
  FillFrom(other, other.memory, count, 11);
  const auto wanted_there = SumOf(home, home.memory, count), wanted_here = SumOf(other, other.memory, count);
  const double one_way = Seconds([&] {
    CopyTo(other, home, num_bytes);
    home.Await();
  });
  const double both_ways = Seconds([&] {
    CopyTo(other, home, num_bytes);
    CopyTo(home, other, num_bytes);
    home.Await();
    other.Await();
  });
  Same(SumOf(other, other.arrived, count), wanted_there, "a copy");
  Same(SumOf(home, home.arrived, count), wanted_here, "a copy back");
  const auto bytes = static_cast<double>(num_bytes);
  Show("copies, one way", bytes / one_way / 1e9, "GB/s");
  Show("copies, both ways at once, each", bytes / both_ways / 1e9, "GB/s");
}

void ShowUse(const Gpu& home, const Gpu& other, size_t num_bytes) {
  const size_t count = num_bytes / sizeof(uint4);
  const auto bytes = static_cast<double>(num_bytes);
  const auto wanted = SumOf(other, other.memory, count);
  unsigned long long found = 0;
  Show("loads of the other's memory", bytes / Seconds([&] { found = SumOf(home, other.memory, count); }) / 1e9, "GB/s");
  Same(found, wanted, "loads");
  const double stores = Seconds([&] { FillFrom(home, other.arrived, count, 13); });
  FillFrom(home, home.arrived, count, 13);
  Same(SumOf(other, other.arrived, count), SumOf(home, home.arrived, count), "stores");
  Show("stores into it", bytes / stores / 1e9, "GB/s");
}

void ShowWord(const Gpu& home, const Gpu& other) {
  const double seconds = Seconds([&] {
    for (const Gpu* gpu : {&home, &other}) {
      gpu->Use();
      Check(cudaMemsetAsync(gpu->word, 0, 2 * sizeof *gpu->word, gpu->stream), "cudaMemsetAsync");
      gpu->Await();
    }
    other.Use();
    ThereAndBack<<<1, 1, 0, other.stream>>>(other.word, home.word, false, other.word + 1);
    home.Use();
    ThereAndBack<<<1, 1, 0, home.stream>>>(home.word, other.word, true, home.word + 1);
    home.Await();
    other.Await();
    for (const Gpu* gpu : {&home, &other}) {
      uint32_t rounds = 0;
      Check(cudaMemcpy(&rounds, gpu->word + 1, sizeof rounds, cudaMemcpyDeviceToHost), "cudaMemcpy");
      if (rounds != kRounds) Fail("a word", "it did not come back");
    }
  });
  Show("a word there and back", seconds / kRounds * 1e6, "us");
}

// Of the driver, without a library to link.
CUdeviceptr Reserve(CUdeviceptr wish, size_t num_bytes) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  // As of CUDA 10.2, which is when it came.
  Check(cudaGetDriverEntryPointByVersion("cuMemAddressReserve", &function, 10020, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
  if (function == nullptr) Fail("cuMemAddressReserve", "this driver does not have it");
  CUdeviceptr address = 0;
  const auto reserve =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(function);
  Require(reserve(&address, num_bytes, 0, wish, 0), "cuMemAddressReserve");
  return address;
}

// In a process of its own: memory on `device` at the address `wish`?
int Wish(int device, const char* wish, const char* num_bytes) {
  Check(cudaSetDevice(device), "cudaSetDevice");
  Check(cudaFree(nullptr), "cudaFree");
  const CUdeviceptr wanted = std::strtoull(wish, nullptr, 16);
  return Reserve(wanted, std::strtoull(num_bytes, nullptr, 10)) == wanted ? 0 : 2;
}

void ShowMirrors(const char* self, int device) {
  Check(cudaSetDevice(0), "cudaSetDevice");
  for (const size_t num_bytes : kReserved) {
    char command[512];
    std::snprintf(command, sizeof command, "'%s' --wish %d %" PRIx64 " %zu", self, device,
                  static_cast<uint64_t>(Reserve(0, num_bytes)), num_bytes);
    const int status = std::system(command);
    if (status != 0 && status != 2 << 8) Fail("the other process", "it failed");
    std::printf("| the same address in a process there, %zu MiB | %s |\n", num_bytes >> 20, status == 0 ? "yes" : "no");
  }
}

void ShowPair(const char* self, int device, size_t num_bytes) {
  std::printf("\n| GPU 0 and GPU %d | |\n|---|---|\n", device);
  int has_access = 0, has_atomics = 0;
  Check(cudaDeviceCanAccessPeer(&has_access, 0, device), "cudaDeviceCanAccessPeer");
  Check(cudaDeviceGetP2PAttribute(&has_atomics, cudaDevP2PAttrNativeAtomicSupported, 0, device),
        "cudaDeviceGetP2PAttribute");
  std::printf("| kernels use the other's memory | %s |\n", has_access ? "yes" : "no");
  std::printf("| atomics of its own there | %s |\n", has_atomics ? "yes" : "no");
  const Gpu home(0, num_bytes), other(device, num_bytes);
  if (has_access) {
    for (const auto& [here, there] : {std::pair(&home, &other), std::pair(&other, &home)}) {
      here->Use();
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(there->device, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) Check(enabled, "cudaDeviceEnablePeerAccess");
      cudaGetLastError();
    }
  }
  ShowCopies(home, other, num_bytes);
  if (has_access) {
    ShowUse(home, other, num_bytes);
    ShowWord(home, other);
  }
  ShowMirrors(self, device);
}

}  // namespace
}  // namespace taskgraph

int main(int argc, char** argv) {
  using namespace taskgraph;
  if (argc == 5 && std::strcmp(argv[1], "--wish") == 0) return Wish(std::atoi(argv[2]), argv[3], argv[4]);
  size_t num_bytes = size_t{256} << 20;
  if (argc == 3 && std::strcmp(argv[1], "--bytes") == 0) {
    num_bytes = std::strtoull(argv[2], nullptr, 10);
  } else if (argc != 1) {
    std::fputs(kUsage, argc == 2 && std::strcmp(argv[1], "--help") == 0 ? stdout : stderr);
    return argc == 2 && std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
  }
  if (num_bytes < sizeof(uint4) || num_bytes % sizeof(uint4) != 0) Fail("--bytes", "a multiple of 16 is needed");
  int num_devices = 0;
  Check(cudaGetDeviceCount(&num_devices), "cudaGetDeviceCount");
  if (num_devices < 2) Fail("this machine", "it has no two GPUs");
  for (int device = 1; device < num_devices; ++device) ShowPair(argv[0], device, num_bytes);
  return 0;
}
