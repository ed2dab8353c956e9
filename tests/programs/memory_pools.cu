// Memory pools beyond plain use: which one is current, by device and (CUDA 13) by location; limits and every attribute;
// trimming; access rights; and the 3-D and linear copies in batches, as they are new with the same version.
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr size_t kBytes = 1 << 20;

void Reference(Results& results) {
  results.Add("current pool", std::vector<uint32_t>(8, 1));
  results.Add("attributes", std::vector<uint64_t>{0, 0, 1, 0, 12345, 1, 1, 1});
  results.Add("codes", std::vector<int>{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS});
  results.AddValue("access", static_cast<int>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  std::vector<uint8_t> box(6 * 5 * 7, 0);
  for (int z = 0; z < 3; ++z) {
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 5; ++x) box[(z * 5 + y) * 7 + x] = static_cast<uint8_t>(1 + z * 20 + y * 5 + x);
    }
  }
  results.Add("3-D batch", box);
  results.Add("linear batch", std::vector<uint8_t>{1, 2, 3, 11, 12, 13});
}

void Copies(Results& results) {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  std::vector<uint8_t> source(60), box(6 * 5 * 7, 0);
  for (int i = 0; i < 60; ++i) source[i] = static_cast<uint8_t>(1 + i);
  check::DeviceBuffer<uint8_t> packed(60), wide(std::vector<uint8_t>(6 * 5 * 7, 0));
  const auto pointer = [](const void* at, size_t row, size_t layer) {
    CUmemcpy3DOperand operand{};
    operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operand.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(at);
    operand.op.ptr.rowLength = row;
    operand.op.ptr.layerHeight = layer;
    return operand;
  };
  const auto batch = check::DriverEntry<decltype(cuMemcpy3DBatchAsync)>("cuMemcpy3DBatchAsync", 13000);
  CUDA_MEMCPY3D_BATCH_OP copies[2] = {};
  copies[0] = {
      pointer(source.data(), 0, 0), pointer(packed.get(), 0, 0), {60, 1, 1}, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 0};
  CHECK_DRIVER(batch(1, copies, 0, stream));
  copies[0] = {pointer(packed.get(), 5, 4), pointer(wide.get(), 7, 5), {5, 4, 2}, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 0};
  copies[1] = {pointer(packed.get() + 40, 0, 0),
               pointer(wide.get() + 2 * 5 * 7, 7, 0),
               {5, 4, 1},
               CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
               0};
  CHECK_DRIVER(batch(2, copies, 0, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("3-D batch", wide.Download());

  const auto linear = check::DriverEntry<decltype(cuMemcpyBatchAsync)>("cuMemcpyBatchAsync", 13000);
  uint8_t* pinned;
  CHECK_CUDA(cudaMallocHost(&pinned, 6));
  CUdeviceptr to[] = {reinterpret_cast<CUdeviceptr>(pinned), reinterpret_cast<CUdeviceptr>(pinned + 3)};
  CUdeviceptr from[] = {reinterpret_cast<CUdeviceptr>(packed.get()), reinterpret_cast<CUdeviceptr>(packed.get() + 10)};
  size_t sizes[] = {3, 3}, first[] = {0};
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CHECK_DRIVER(linear(to, from, sizes, 2, &attributes, first, 1, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("linear batch", pinned, 6);
  CHECK_CUDA(cudaFreeHost(pinned));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

template <typename T>
uint64_t PoolAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  T value{};
  CHECK_CUDA(cudaMemPoolGetAttribute(pool, attribute, &value));
  return static_cast<uint64_t>(value);
}

void Device(Results& results) {
  CHECK_CUDA(cudaFree(nullptr));
  const auto get_default = check::DriverEntry<decltype(cuMemGetDefaultMemPool)>("cuMemGetDefaultMemPool", 13000);
  const auto get_current = check::DriverEntry<decltype(cuMemGetMemPool)>("cuMemGetMemPool", 13000);
  const auto set_current = check::DriverEntry<decltype(cuMemSetMemPool)>("cuMemSetMemPool", 13000);
  cudaMemPool_t default_pool, current, own_pool;
  CHECK_CUDA(cudaDeviceGetDefaultMemPool(&default_pool, 0));
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  CHECK_CUDA(cudaMemPoolCreate(&own_pool, &properties));

  std::vector<uint32_t> current_pool;
  CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool found = nullptr;
  CHECK_DRIVER(get_default(&found, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  current_pool.push_back(found == default_pool);
  CHECK_CUDA(cudaDeviceGetMemPool(&current, 0));
  current_pool.push_back(current == default_pool);
  CHECK_DRIVER(set_current(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own_pool));
  CHECK_CUDA(cudaDeviceGetMemPool(&current, 0));
  current_pool.push_back(current == own_pool);
  CHECK_DRIVER(get_current(&found, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  current_pool.push_back(found == own_pool);
  void *from_current, *from_default;
  CHECK_CUDA(cudaMallocAsync(&from_current, kBytes, nullptr));
  CHECK_CUDA(cudaStreamSynchronize(nullptr));
  current_pool.push_back(PoolAttribute<cuuint64_t>(own_pool, cudaMemPoolAttrUsedMemCurrent) >= kBytes);
  CHECK_CUDA(cudaDeviceSetMemPool(0, default_pool));
  CHECK_CUDA(cudaDeviceGetMemPool(&current, 0));
  current_pool.push_back(current == default_pool);
  CHECK_CUDA(cudaMallocAsync(&from_default, kBytes, nullptr));
  CHECK_CUDA(cudaStreamSynchronize(nullptr));
  current_pool.push_back(PoolAttribute<cuuint64_t>(own_pool, cudaMemPoolAttrUsedMemCurrent) < 2 * kBytes);
  current_pool.push_back(PoolAttribute<cuuint64_t>(default_pool, cudaMemPoolAttrUsedMemCurrent) >= kBytes);
  results.Add("current pool", current_pool);

  std::vector<uint64_t> attributes;
  int off = 0;
  for (cudaMemPoolAttr attribute : {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic}) {
    CHECK_CUDA(cudaMemPoolSetAttribute(own_pool, attribute, &off));
    attributes.push_back(PoolAttribute<int>(own_pool, attribute));
  }
  attributes.push_back(PoolAttribute<int>(own_pool, cudaMemPoolReuseAllowInternalDependencies));
  CHECK_CUDA(cudaMemPoolSetAttribute(own_pool, cudaMemPoolReuseAllowInternalDependencies, &off));
  attributes.push_back(PoolAttribute<int>(own_pool, cudaMemPoolReuseAllowInternalDependencies));
  cuuint64_t threshold = 12345, none = 0;
  CHECK_CUDA(cudaMemPoolSetAttribute(own_pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  attributes.push_back(PoolAttribute<cuuint64_t>(own_pool, cudaMemPoolAttrReleaseThreshold));
  attributes.push_back(PoolAttribute<cuuint64_t>(own_pool, cudaMemPoolAttrReservedMemCurrent) >= kBytes);
  CHECK_CUDA(cudaFreeAsync(from_current, nullptr));
  CHECK_CUDA(cudaStreamSynchronize(nullptr));
  CHECK_CUDA(cudaMemPoolTrimTo(own_pool, 0));
  attributes.push_back(PoolAttribute<cuuint64_t>(own_pool, cudaMemPoolAttrUsedMemHigh) >= kBytes);
  CHECK_CUDA(cudaMemPoolSetAttribute(own_pool, cudaMemPoolAttrUsedMemHigh, &none));
  CHECK_CUDA(cudaMemPoolSetAttribute(own_pool, cudaMemPoolAttrReservedMemHigh, &none));
  attributes.push_back(PoolAttribute<cuuint64_t>(own_pool, cudaMemPoolAttrUsedMemHigh) < kBytes);
  results.Add("attributes", attributes);

  std::vector<int> codes;
  codes.push_back(get_default(nullptr, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  CUmemLocation nowhere{static_cast<CUmemLocationType>(77), 0};
  codes.push_back(get_default(&found, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  codes.push_back(cudaMemPoolSetAccess(own_pool, &access, 1));
  results.Add("codes", codes);
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
  CHECK_CUDA(cudaMemPoolGetAccess(&flags, own_pool, &access.location));
  results.AddValue("access", static_cast<int>(flags));
  CHECK_CUDA(cudaFreeAsync(from_default, nullptr));
  CHECK_CUDA(cudaMemPoolDestroy(own_pool));
  Copies(results);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
