// Virtual memory management as a growing allocator uses it: a large reservation, physical pieces mapped one after
// another, kernels, copies and fills across their borders, pieces taken away and put elsewhere, one piece at two
// addresses, and what the driver says to mistakes.
#include <cuda.h>

#include "tests/programs/check.h"
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr size_t kPieces = 6;

void Reference(Results& results) {
  // Granularity differs between devices: values depend on positions within the first kilobytes of a piece only.
  std::vector<uint32_t> across;
  for (uint32_t i = 0; i < 4096; ++i) across.push_back(i * 2654435761u + 7);
  results.Add("across a border", across);
  results.Add("filled across", std::vector<uint8_t>(512, 0x5a));
  results.Add("moved piece", std::vector<uint32_t>{1, 2, 3, 4});
  results.Add("two addresses", std::vector<uint32_t>(64, 99));
  results.Add("mapping, retained, access, properties",
              std::vector<uint32_t>{1, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 1});
  results.Add("mistakes are refused", std::vector<uint32_t>(6, 1));
  results.AddValue<uint32_t>("unmap a hole", CUDA_SUCCESS);
}

__global__ void Write(uint32_t* values, uint32_t count) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = i * 2654435761u + 7;
}

__global__ void Set(uint32_t* values, uint32_t value) { values[threadIdx.x] = value; }

struct Space {
  decltype(cuMemAddressReserve)* reserve = DRIVER_ENTRY(cuMemAddressReserve);
  decltype(cuMemAddressFree)* free = DRIVER_ENTRY(cuMemAddressFree);
  decltype(cuMemCreate)* create = DRIVER_ENTRY(cuMemCreate);
  decltype(cuMemRelease)* release = DRIVER_ENTRY(cuMemRelease);
  decltype(cuMemMap)* map = DRIVER_ENTRY(cuMemMap);
  decltype(cuMemUnmap)* unmap = DRIVER_ENTRY(cuMemUnmap);
  decltype(cuMemSetAccess)* set_access = DRIVER_ENTRY(cuMemSetAccess);
  decltype(cuMemGetAccess)* get_access = DRIVER_ENTRY(cuMemGetAccess);
  decltype(cuMemGetAllocationGranularity)* granularity = DRIVER_ENTRY(cuMemGetAllocationGranularity);
  decltype(cuMemGetAllocationPropertiesFromHandle)* properties = DRIVER_ENTRY(cuMemGetAllocationPropertiesFromHandle);
  decltype(cuMemRetainAllocationHandle)* retain = DRIVER_ENTRY(cuMemRetainAllocationHandle);
};

void Device(Results& results) {
  CHECK_CUDA(cudaFree(nullptr));
  const Space driver;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  size_t piece = 0;
  CHECK_DRIVER(driver.granularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  const size_t reserved = size_t{8} << 30;  // far more than is ever mapped
  CUdeviceptr base = 0;
  CHECK_DRIVER(driver.reserve(&base, reserved, 0, 0, 0));

  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handles[kPieces];
  for (size_t i = 0; i < kPieces; ++i) {
    CHECK_DRIVER(driver.create(&handles[i], piece, &properties, 0));
    CHECK_DRIVER(driver.map(base + i * piece, piece, 0, handles[i], 0));
    CHECK_DRIVER(driver.set_access(base + i * piece, piece, &access, 1));
  }

  // A kernel, a copy up and a copy down over the border of the first two pieces.
  uint32_t* border = reinterpret_cast<uint32_t*>(base + piece - 8192);
  Write<<<16, 256>>>(border, 4096);
  CHECK_LAUNCH();
  std::vector<uint32_t> values(4096);
  CHECK_CUDA(cudaMemcpy(values.data(), border, 16384, cudaMemcpyDeviceToHost));
  uint32_t* other_border = reinterpret_cast<uint32_t*>(base + 3 * piece - 4096);
  CHECK_CUDA(cudaMemcpy(other_border, values.data(), 16384, cudaMemcpyHostToDevice));
  uint32_t* third_border = reinterpret_cast<uint32_t*>(base + 5 * piece - 4096);
  CHECK_CUDA(cudaMemcpy(third_border, other_border, 16384, cudaMemcpyDeviceToDevice));
  CHECK_CUDA(cudaMemcpy(values.data(), third_border, 16384, cudaMemcpyDefault));
  results.Add("across a border", values);
  CHECK_CUDA(cudaMemset(reinterpret_cast<void*>(base + 2 * piece - 256), 0x5a, 512));
  std::vector<uint8_t> bytes(512);
  CHECK_CUDA(cudaMemcpy(bytes.data(), reinterpret_cast<void*>(base + 2 * piece - 256), 512, cudaMemcpyDeviceToHost));
  results.Add("filled across", bytes);

  // A piece leaves the middle and comes back at the end of what is mapped, with what it holds.
  const uint32_t marks[4] = {1, 2, 3, 4};
  CHECK_CUDA(cudaMemcpy(reinterpret_cast<void*>(base + 2 * piece), marks, sizeof(marks), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_DRIVER(driver.unmap(base + 2 * piece, piece));
  CHECK_DRIVER(driver.map(base + kPieces * piece, piece, 0, handles[2], 0));
  CHECK_DRIVER(driver.set_access(base + kPieces * piece, piece, &access, 1));
  std::vector<uint32_t> moved(4);
  CHECK_CUDA(cudaMemcpy(moved.data(), reinterpret_cast<void*>(base + kPieces * piece), 16, cudaMemcpyDeviceToHost));
  results.Add("moved piece", moved);

  // One piece, two addresses.
  CHECK_DRIVER(driver.map(base + 2 * piece, piece, 0, handles[5], 0));
  CHECK_DRIVER(driver.set_access(base + 2 * piece, piece, &access, 1));
  Set<<<1, 64>>>(reinterpret_cast<uint32_t*>(base + 2 * piece + 1024), 99);
  CHECK_LAUNCH();
  std::vector<uint32_t> seen(64);
  CHECK_CUDA(cudaMemcpy(seen.data(), reinterpret_cast<void*>(base + 5 * piece + 1024), 256, cudaMemcpyDeviceToHost));
  results.Add("two addresses", seen);

  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, reinterpret_cast<void*>(base + piece + 5)));
  CUmemGenericAllocationHandle retained = 0;
  CHECK_DRIVER(driver.retain(&retained, reinterpret_cast<void*>(base + 4096)));
  CUmemAllocationProp retained_properties;
  CHECK_DRIVER(driver.properties(&retained_properties, retained));
  CHECK_DRIVER(driver.release(retained));
  unsigned long long flags = 0;
  CHECK_DRIVER(driver.get_access(&flags, &properties.location, base));
  results.Add("mapping, retained, access, properties",
              std::vector<uint32_t>{attributes.type == cudaMemoryTypeDevice && attributes.device == 0, retained != 0,
                                    static_cast<uint32_t>(flags),
                                    retained_properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                                        retained_properties.location.id == 0});

  std::vector<uint32_t> refused;
  const auto mistake = [&](const char* what, CUresult result) {
    printf("%s: %d\n", what, static_cast<int>(result));
    refused.push_back(result != CUDA_SUCCESS);
  };
  mistake("map where something is", driver.map(base, piece, 0, handles[1], 0));
  mistake("map outside of the reservation", driver.map(base + reserved, piece, 0, handles[1], 0));
  mistake("unmap half a piece", driver.unmap(base, piece / 2));
  mistake("free a part of the reservation", driver.free(base, reserved / 2));
  mistake("access to a hole", driver.set_access(base + (kPieces + 2) * piece, piece, &access, 1));
  mistake("create a size that is no multiple", driver.create(&retained, piece + 1, &properties, 0));
  results.Add("mistakes are refused", refused);
  // Where nothing is mapped there is nothing to take away.
  results.AddValue<uint32_t>("unmap a hole", driver.unmap(base + (kPieces + 2) * piece, piece));
  cudaGetLastError();

  // Handles first: the mappings keep the memory. Then everything mapped in one call, which must be contiguous.
  for (size_t i = 0; i < kPieces; ++i) CHECK_DRIVER(driver.release(handles[i]));
  CHECK_CUDA(cudaMemcpy(moved.data(), reinterpret_cast<void*>(base + kPieces * piece), 16, cudaMemcpyDeviceToHost));
  if (moved[3] != 4) check::Fail("a released piece lost its contents");
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_DRIVER(driver.unmap(base, (kPieces + 1) * piece));
  printf("unmap outside of the reservation: %d\n", static_cast<int>(driver.unmap(base + reserved, piece)));
  CHECK_DRIVER(driver.free(base, reserved));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
