// cudaHostRegister of the program's own memory: copies through it, what the runtime says of its pages before, while and
// after they are registered, and the errors of doing it twice or not at all.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr size_t kCount = 100003;

std::vector<uint32_t> Source() { return check::RandomIntegers<uint32_t>(kCount, 21); }

void Reference(Results& results) {
  results.Add("through registered", Source());
  results.Add("types", std::vector<int>{cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeUnregistered});
  results.Add("codes", std::vector<int>{cudaErrorHostMemoryNotRegistered, cudaErrorHostMemoryAlreadyRegistered});
}

int TypeOf(const void* pointer) {
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  return attributes.type;
}

void Device(Results& results) {
  std::vector<uint32_t> ordinary = Source();  // not page-aligned: the driver registers the pages around it
  size_t bytes = kCount * sizeof(uint32_t);
  check::DeviceBuffer<uint32_t> device(kCount);
  device.Zero();
  std::vector<int> types = {TypeOf(ordinary.data())};
  std::vector<int> codes = {cudaHostUnregister(ordinary.data())};
  CHECK_CUDA(cudaHostRegister(ordinary.data(), bytes, cudaHostRegisterDefault));
  types.push_back(TypeOf(ordinary.data()));
  codes.push_back(cudaHostRegister(ordinary.data(), bytes, cudaHostRegisterDefault));
  CHECK_CUDA(cudaMemcpyAsync(device.get(), ordinary.data(), bytes, cudaMemcpyHostToDevice, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
  memset(ordinary.data(), 0, bytes);
  CHECK_CUDA(cudaMemcpyAsync(ordinary.data(), device.get(), bytes, cudaMemcpyDeviceToHost, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaHostUnregister(ordinary.data()));
  types.push_back(TypeOf(ordinary.data()));
  cudaGetLastError();
  results.Add("through registered", ordinary);
  results.Add("types", types);
  results.Add("codes", codes);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
