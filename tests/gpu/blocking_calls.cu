// Which driver calls wait for running kernels, and what else waits meanwhile? Run natively on a machine with two GPUs
// (one will do for half of the table):
//
//   blocking_calls            prints a Markdown table
//
// The executor serves several programs from one process with one context per device. Natively a call of one program
// never waits for another program's kernels; here it may, if the driver makes it wait for the whole context, or for
// contexts that are peers. Kernels of NCCL wait for kernels of other ranks, so such a wait can be for ever
// (docs/sharing.md). For each call made on device 0 while a kernel spins, the table says whether it returned within
// two seconds, and whether launches of other threads on either device got through while it did not.
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/check.h"
#include "tests/programs/driver_entry.h"

namespace {

constexpr auto kPatience = std::chrono::seconds(2);
const char* const kModule =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry probe(.param .u64 p) {\n ret;\n}\n";

__global__ void SpinUntil(volatile int* flag) {
  while (*flag == 0) {
  }
}
__global__ void Nothing() {}

struct Case {
  const char* name;
  std::function<void()> prepare;  // before the kernel spins
  std::function<void()> call;     // while it does
  std::function<void()> clean = [] {};
};

void On(int device) { CHECK_CUDA(cudaSetDevice(device)); }

// The word for whether `work` is done in time. Leaves the future for the caller to join.
template <typename Work>
std::string InTime(Work work, std::vector<std::future<void>>* pending) {
  pending->push_back(std::async(std::launch::async, work));
  return pending->back().wait_for(kPatience) == std::future_status::ready ? "returns" : "**waits**";
}

}  // namespace

int main() {
  int num_devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&num_devices));
  int* flag;
  On(0);
  CHECK_CUDA(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped));
  cudaStream_t spin[2] = {}, other[2] = {};
  for (int device = 0; device < num_devices && device < 2; ++device) {
    On(device);
    CHECK_CUDA(cudaStreamCreateWithFlags(&spin[device], cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other[device], cudaStreamNonBlocking));
    *flag = 1;
    SpinUntil<<<1, 1, 0, spin[device]>>>(flag);  // everything loaded before it matters
    Nothing<<<1, 1, 0, other[device]>>>();
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  void *memory = nullptr, *pages = nullptr, *pooled = nullptr;
  CUmodule module = nullptr;
  auto* load = DRIVER_ENTRY(cuModuleLoadData);
  auto* unload = DRIVER_ENTRY(cuModuleUnload);
  auto* reserve = DRIVER_ENTRY(cuMemAddressReserve);
  auto* create = DRIVER_ENTRY(cuMemCreate);
  auto* map = DRIVER_ENTRY(cuMemMap);
  auto* set_access = DRIVER_ENTRY(cuMemSetAccess);
  auto* unmap = DRIVER_ENTRY(cuMemUnmap);
  auto* release = DRIVER_ENTRY(cuMemRelease);
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  const size_t piece = 2 << 20;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                               {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  const auto nothing = [] {};
  const size_t num_pages_bytes = 16 << 20;
  cudaStream_t made = nullptr;
  const auto make_mapping = [&] {
    CHECK_DRIVER(reserve(&address, piece, 0, 0, 0));
    CHECK_DRIVER(create(&handle, piece, &properties, 0));
    CHECK_DRIVER(map(address, piece, 0, handle, 0));
    CHECK_DRIVER(set_access(address, piece, access, num_devices > 1 ? 2 : 1));
  };
  const auto end_mapping = [&] {
    CHECK_DRIVER(unmap(address, piece));
    CHECK_DRIVER(release(handle));
  };
  const auto map_pages = [&] {
    pages = mmap(nullptr, num_pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  };
  const auto free_memory = [&] { CHECK_CUDA(cudaFree(memory)); };
  const std::vector<Case> cases = {
      {"cuMemAlloc 64 MiB", nothing, [&] { CHECK_CUDA(cudaMalloc(&memory, 64 << 20)); }, free_memory},
      {"cuMemFree", [&] { CHECK_CUDA(cudaMalloc(&memory, 64 << 20)); }, free_memory},
      {"cuMemAllocAsync, cuMemFreeAsync", nothing,
       [&] {
         CHECK_CUDA(cudaMallocAsync(&pooled, 64 << 20, other[0]));
         CHECK_CUDA(cudaFreeAsync(pooled, other[0]));
       }},
      {"cuMemHostRegister (portable)", map_pages,
       [&] { CHECK_CUDA(cudaHostRegister(pages, num_pages_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped)); },
       [&] { CHECK_CUDA(cudaHostUnregister(pages)); }},
      {"cuMemHostUnregister (portable)",
       [&] {
         map_pages();
         CHECK_CUDA(cudaHostRegister(pages, num_pages_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
       },
       [&] { CHECK_CUDA(cudaHostUnregister(pages)); }},
      {"cuModuleLoadData (PTX)", nothing, [&] { CHECK_DRIVER(load(&module, kModule)); },
       [&] { CHECK_DRIVER(unload(module)); }},
      {"cuModuleUnload", [&] { CHECK_DRIVER(load(&module, kModule)); }, [&] { CHECK_DRIVER(unload(module)); }},
      {"cuStreamCreate, cuStreamDestroy", nothing,
       [&] {
         CHECK_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
         CHECK_CUDA(cudaStreamDestroy(made));
       }},
      {"cuMemCreate, cuMemMap, cuMemSetAccess", nothing, make_mapping, end_mapping},
      {"cuMemUnmap, cuMemRelease", make_mapping, end_mapping},
      {"cuMemcpyHtoD from pageable memory", [&] { CHECK_CUDA(cudaMalloc(&memory, 1 << 20)); },
       [&] {
         std::vector<char> bytes(1 << 20, 1);
         CHECK_CUDA(cudaMemcpyAsync(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, other[0]));
         CHECK_CUDA(cudaStreamSynchronize(other[0]));
       },
       free_memory},
  };

  printf("| call on device 0 | kernel spins on | the call | launches on device 0 | launches on device 1 |\n");
  printf("|---|---|---|---|---|\n");
  for (int peers = 0; peers < (num_devices > 1 ? 2 : 1); ++peers) {
    if (peers == 1) {
      for (int device = 0; device < 2; ++device) {
        On(device);
        if (cudaDeviceEnablePeerAccess(1 - device, 0) != cudaSuccess) cudaGetLastError();
      }
    }
    for (int spinning = 0; spinning < 2 && spinning < num_devices; ++spinning) {
      for (const Case& probe : cases) {
        On(0);
        probe.prepare();
        *flag = 0;
        On(spinning);
        SpinUntil<<<1, 1, 0, spin[spinning]>>>(flag);
        CHECK_LAUNCH();
        std::vector<std::future<void>> pending;
        const std::string call = InTime([&] { On(0), probe.call(); }, &pending);
        std::string launches[2] = {"", ""};
        for (int device = 0; device < 2 && device < num_devices; ++device) {
          launches[device] = InTime([&, device] { On(device), Nothing<<<1, 1, 0, other[device]>>>(); }, &pending);
        }
        *flag = 1;
        for (auto& one : pending) one.wait();
        for (int device = 0; device < 2 && device < num_devices; ++device) {
          On(device);
          CHECK_CUDA(cudaDeviceSynchronize());
        }
        On(0);
        probe.clean();
        printf("| %s | device %d%s | %s | %s | %s |\n", probe.name, spinning, peers != 0 ? ", peers" : "", call.c_str(),
               launches[0].c_str(), launches[1].c_str());
        fflush(stdout);
      }
    }
  }
}
