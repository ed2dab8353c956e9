// The driver's pointer attributes for every kind of memory: pointers inside an allocation, memory from pools, pinned,
// managed and registered memory, module variables; freed memory and pointers that CUDA never heard of.
#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

__device__ uint32_t variable[1000];

constexpr size_t kBytes = 10000;

struct Attributes {
  unsigned memory_type;
  unsigned is_managed;
  unsigned mapped;
  int ordinal;
  bool is_device_pointer_same;
  bool has_host_pointer;
  bool is_in_range;  // range start and size enclose the pointer
};

bool operator==(const Attributes& a, const Attributes& b) {
  return a.memory_type == b.memory_type && a.is_managed == b.is_managed && a.mapped == b.mapped &&
         a.ordinal == b.ordinal && a.is_device_pointer_same == b.is_device_pointer_same &&
         a.has_host_pointer == b.has_host_pointer && a.is_in_range == b.is_in_range;
}

const char* const kKinds[] = {"device", "pool", "own pool", "pinned", "managed", "registered", "module variable"};
constexpr unsigned kHostType = CU_MEMORYTYPE_HOST, kDeviceType = CU_MEMORYTYPE_DEVICE;

void Reference(Results& results) {
  results.Add("kinds as expected", std::vector<uint32_t>(7, 1));
  results.Add("same buffer, another buffer", std::vector<uint32_t>{1, 1});
  results.Add("pools", std::vector<uint32_t>{1, 1, 1});
  results.Add("set and get", std::vector<uint32_t>{0, 1});
  results.Add("freed and unknown, one attribute",
              std::vector<int>{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE});
  results.Add("freed and unknown, several attributes", std::vector<uint64_t>{0, 0, 0, 0, 0, 0});
  results.AddValue("host pointer of device memory", static_cast<int>(CUDA_ERROR_INVALID_VALUE));
}

auto* Get() {
  static auto* entry = DRIVER_ENTRY(cuPointerGetAttribute);
  return entry;
}

template <typename T>
T AttributeOf(CUdeviceptr pointer, CUpointer_attribute attribute) {
  T value{};
  CHECK_DRIVER(Get()(&value, attribute, pointer));
  return value;
}

Attributes AttributesOf(const void* at) {
  const CUdeviceptr pointer = reinterpret_cast<CUdeviceptr>(at);
  Attributes a;
  a.memory_type = AttributeOf<unsigned>(pointer, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  a.is_managed = AttributeOf<unsigned>(pointer, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  a.mapped = AttributeOf<unsigned>(pointer, CU_POINTER_ATTRIBUTE_MAPPED);
  a.ordinal = AttributeOf<int>(pointer, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  // Registered memory may have another address on the device; from there the way leads back.
  const auto device = AttributeOf<CUdeviceptr>(pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
  a.is_device_pointer_same = AttributeOf<CUdeviceptr>(device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == device;
  void* host = nullptr;
  a.has_host_pointer = Get()(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer) == CUDA_SUCCESS && host == at;
  const auto start = AttributeOf<CUdeviceptr>(device, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  const auto size = AttributeOf<size_t>(device, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  a.is_in_range = start <= device && device - start < size;
  return a;
}

void Device(Results& results) {
  char *device, *other, *pinned, *managed, *from_pool, *from_own_pool;
  void* module_variable;
  CHECK_CUDA(cudaMalloc(&device, kBytes));
  CHECK_CUDA(cudaMalloc(&other, kBytes));
  CHECK_CUDA(cudaMallocHost(&pinned, kBytes));
  CHECK_CUDA(cudaMallocManaged(&managed, kBytes));
  CHECK_CUDA(cudaMallocAsync(&from_pool, kBytes, nullptr));
  CHECK_CUDA(cudaGetSymbolAddress(&module_variable, variable));
  std::vector<char> registered(kBytes * 10);
  CHECK_CUDA(cudaHostRegister(registered.data(), registered.size(), cudaHostRegisterDefault));
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t own_pool, default_pool;
  CHECK_CUDA(cudaMemPoolCreate(&own_pool, &properties));
  CHECK_CUDA(cudaDeviceGetDefaultMemPool(&default_pool, 0));
  CHECK_CUDA(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&from_own_pool), kBytes, own_pool, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());

  const Attributes on_device = {kDeviceType, 0, 1, 0, true, false, true};
  const Attributes on_host = {kHostType, 0, 1, 0, true, true, true};
  const Attributes in_managed = {kDeviceType, 1, 1, 0, true, true, true};
  const char* const pointers[] = {device + 5000,
                                  from_pool + 77,
                                  from_own_pool + 9999,
                                  pinned + 4097,
                                  managed + 1,
                                  registered.data() + 600,
                                  static_cast<char*>(module_variable) + 400};
  const Attributes expected[] = {on_device, on_device, on_device, on_host, in_managed, on_host, on_device};
  std::vector<uint32_t> as_expected;
  for (int i = 0; i < 7; ++i) {
    const Attributes a = AttributesOf(pointers[i]);
    as_expected.push_back(a == expected[i]);
    if (!as_expected.back())
      printf("%s: type %u managed %u mapped %u ordinal %d device pointer %d host pointer %d range %d\n", kKinds[i],
             a.memory_type, a.is_managed, a.mapped, a.ordinal, a.is_device_pointer_same, a.has_host_pointer,
             a.is_in_range);
  }
  results.Add("kinds as expected", as_expected);

  const auto id_of = [](const void* at) {
    return AttributeOf<unsigned long long>(reinterpret_cast<CUdeviceptr>(at), CU_POINTER_ATTRIBUTE_BUFFER_ID);
  };
  results.Add("same buffer, another buffer",
              std::vector<uint32_t>{id_of(device) == id_of(device + 9999), id_of(device) != id_of(other)});
  const auto pool_of = [](const void* at) {
    return AttributeOf<CUmemoryPool>(reinterpret_cast<CUdeviceptr>(at), CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
  };
  results.Add("pools", std::vector<uint32_t>{pool_of(from_pool) == default_pool, pool_of(from_own_pool) == own_pool,
                                             pool_of(device) == nullptr});

  const auto at_device = reinterpret_cast<CUdeviceptr>(device);
  std::vector<uint32_t> synchronizes = {AttributeOf<unsigned>(at_device, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)};
  const unsigned one = 1;
  CHECK_DRIVER(DRIVER_ENTRY(cuPointerSetAttribute)(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at_device));
  synchronizes.push_back(AttributeOf<unsigned>(at_device, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS));
  results.Add("set and get", synchronizes);

  CHECK_CUDA(cudaFree(other));
  char ordinary[16];
  std::vector<int> single;
  std::vector<uint64_t> several;
  for (const void* at :
       {static_cast<const void*>(other), static_cast<const void*>(ordinary), static_cast<const void*>(kKinds)}) {
    const auto pointer = reinterpret_cast<CUdeviceptr>(at);
    unsigned type = 17;
    single.push_back(Get()(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    CUcontext context = reinterpret_cast<CUcontext>(17);
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
    void* values[] = {&type, &context};
    CHECK_DRIVER(DRIVER_ENTRY(cuPointerGetAttributes)(2, attributes, values, pointer));
    several.push_back(type);
    several.push_back(reinterpret_cast<uint64_t>(context));
  }
  results.Add("freed and unknown, one attribute", single);
  results.Add("freed and unknown, several attributes", several);
  void* host;
  results.AddValue("host pointer of device memory",
                   static_cast<int>(Get()(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at_device)));

  CHECK_CUDA(cudaHostUnregister(registered.data()));
  CHECK_CUDA(cudaFreeAsync(from_pool, nullptr));
  CHECK_CUDA(cudaFreeAsync(from_own_pool, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemPoolDestroy(own_pool));
  CHECK_CUDA(cudaFree(device));
  CHECK_CUDA(cudaFree(managed));
  CHECK_CUDA(cudaFreeHost(pinned));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
