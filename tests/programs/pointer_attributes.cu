// What the runtime knows about pointers: device, inside of device, pinned, ordinary memory; the base and
// size of an allocation.
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.Add("types", std::vector<int>{cudaMemoryTypeDevice, cudaMemoryTypeDevice, cudaMemoryTypeHost,
                                        cudaMemoryTypeUnregistered});
  results.Add("relations", std::vector<uint32_t>(8, 1));
}

int TypeOf(const void* pointer) {
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  return attributes.type;
}

void Device(Results& results) {
  constexpr size_t kBytes = 10000;
  char *device, *pinned;
  std::vector<char> ordinary(kBytes * 4);
  CHECK_CUDA(cudaMalloc(&device, kBytes));
  CHECK_CUDA(cudaMallocHost(&pinned, kBytes));
  std::vector<int> types = {TypeOf(device), TypeOf(device + 5000), TypeOf(pinned + 17), TypeOf(ordinary.data())};
  results.Add("types", types);

  std::vector<uint32_t> relations;
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, device + 100));
  relations.push_back(attributes.devicePointer == device + 100);
  relations.push_back(attributes.hostPointer == nullptr);
  relations.push_back(attributes.device == 0);
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, pinned + 100));
  relations.push_back(attributes.hostPointer == pinned + 100);
  relations.push_back(attributes.devicePointer == pinned + 100);  // unified addressing
  CUdeviceptr base = 0;
  size_t size = 0;
  CHECK_DRIVER(DRIVER_ENTRY(cuMemGetAddressRange)(&base, &size, reinterpret_cast<CUdeviceptr>(device + 77)));
  relations.push_back(base == reinterpret_cast<CUdeviceptr>(device));
  relations.push_back(size >= kBytes && size < kBytes + (2 << 20));  // a driver may round up
  size_t free_bytes = 0, total_bytes = 0;
  CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  relations.push_back(free_bytes > 0 && free_bytes < total_bytes);
  results.Add("relations", relations);
  CHECK_CUDA(cudaFree(device));
  CHECK_CUDA(cudaFreeHost(pinned));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
