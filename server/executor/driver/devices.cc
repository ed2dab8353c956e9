#include "server/executor/driver/devices.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "proto/driver/generated/driver_symbols.h"

namespace tally::server {
namespace {

// The device can do it, Tally may not: what a client is told.
struct Promise {
  CUdevice_attribute attribute;
  int value;
  // The attribute advertises this function: the value holds while its row in driver_api.tsv is refused, and the device
  // speaks for itself once it is served. Null: holds always.
  const char* function;
};

constexpr std::array kPromises = {
    // Pageable memory of the client is in another process.
    Promise{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0, nullptr},
    // Where the executor has something else at the program's address, the device sees registered memory elsewhere.
    Promise{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0, nullptr},
    // Managed memory is shared pinned memory: both sides may touch it, but not at once.
    Promise{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0, nullptr},
    // Virtual memory management, sharing between processes, other devices on the bus.
    Promise{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0, "cuMemCreate"},
    Promise{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0, "cuMemExportToShareableHandle"},
    Promise{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0, nullptr},
    Promise{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 0, "cuFlushGPUDirectRDMAWrites"},
    Promise{CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, "cuMemGetHandleForAddressRange"},
    Promise{CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0, "cuIpcGetEventHandle"},
    Promise{CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0, "cuMulticastCreate"},
    Promise{CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0, "cuImportExternalSemaphore"},
    Promise{CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0, "cuMemMapArrayAsync"},
    Promise{CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0, "cuMemMapArrayAsync"},
    Promise{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0, "cuMemBatchDecompressAsync"},
    Promise{CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0, "cuMemBatchDecompressAsync"},
    Promise{CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0, "cuLibraryGetUnifiedFunction"},
    Promise{CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 0, "cuLaunchCooperativeKernelMultiDevice"},
    Promise{CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 0, "cuTensorMapEncodeTiled"},
    // A client's context says nothing about who else uses the device.
    Promise{CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT, nullptr},
};

constexpr bool Holds(const Promise& promise) {
  return promise.function == nullptr || kDriverSymbols[FindDriverSymbol(promise.function)].verdict == Verdict::kRefused;
}
static_assert(std::ranges::all_of(kPromises,
                                  [](const Promise& promise) {
                                    return promise.function == nullptr ||
                                           FindDriverSymbol(promise.function) < kNumDriverSymbols;
                                  }),
              "every function named above is a row of driver_api.tsv");

}  // namespace

Result<std::unique_ptr<Devices>> Devices::Create(const DriverTable& driver,
                                                 std::function<void(int)> on_making_context) {
  std::unique_ptr<Devices> devices(new Devices(driver, std::move(on_making_context)));
  int count = 0;
  if (const CUresult result = driver.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return Error(StatusCode::kUnavailable, "count devices: " + CudaErrorName(driver, result));
  }
  count = std::min(count, 58);  // 58 descriptions fill a reply
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Device device;
    if (const CUresult result = driver.cuDeviceGet(&device.handle, ordinal); result != CUDA_SUCCESS) {
      return Error(StatusCode::kUnavailable, fmt::format("device {}: {}", ordinal, CudaErrorName(driver, result)));
    }
    device.completions = std::make_unique<CompletionSource>(driver);
    devices->devices_.push_back(std::move(device));
  }
  return devices;
}

Devices::~Devices() { Release(); }

uint32_t Devices::Capability(int ordinal) const {
  int major = 0, minor = 0;
  driver_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device(ordinal));
  driver_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device(ordinal));
  return static_cast<uint32_t>(major * 10 + minor);
}

CUresult Devices::Context(int ordinal, CUcontext* context) {
  Device& device = devices_[static_cast<size_t>(ordinal)];
  const std::lock_guard lock(mutex_);
  if (device.context == nullptr) {
    if (on_making_context_) on_making_context_(ordinal);
    const CUresult result = driver_.cuDevicePrimaryCtxRetain(&device.context, device.handle);
    if (on_making_context_) on_making_context_(-1);
    if (result != CUDA_SUCCESS) {
      device.context = nullptr;
      LOG_WARNING("cannot create a context on device {}: {}", ordinal, CudaErrorName(driver_, result));
      return result;
    }
  }
  *context = device.context;
  return CUDA_SUCCESS;
}

CUuuid Devices::Uuid(int ordinal) const {
  CUuuid uuid{};
  if (driver_.cuDeviceGetUuid_v2 != nullptr) driver_.cuDeviceGetUuid_v2(&uuid, device(ordinal));
  return uuid;
}

control::LinkGpu Devices::Outline(int ordinal) const {
  control::LinkGpu gpu{};
  gpu.ordinal = static_cast<uint32_t>(ordinal);
  const CUuuid uuid = Uuid(ordinal);
  std::memcpy(gpu.uuid, uuid.bytes, sizeof(gpu.uuid));
  driver_.cuDeviceGetName(gpu.name, sizeof(gpu.name) - 1, device(ordinal));
  size_t total = 0;
  if (driver_.cuDeviceTotalMem_v2(&total, device(ordinal)) == CUDA_SUCCESS) gpu.total_memory_bytes = total;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver_.cuDeviceGetAttribute(&value, which, device(ordinal));
    return static_cast<uint32_t>(value);
  };
  gpu.pci_domain = attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  gpu.pci_bus = attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  gpu.pci_device = attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  gpu.capability = Capability(ordinal);
  return gpu;
}

CUresult Devices::Describe(int ordinal, int like, shm::DeviceDescription* description) {
  *description = {};
  const CUdevice device = devices_[static_cast<size_t>(ordinal)].handle;
  if (const CUresult r = driver_.cuDeviceGetName(description->name, sizeof(description->name) - 1, device);
      r != CUDA_SUCCESS) {
    return r;
  }
  const CUuuid uuid = Uuid(ordinal);
  std::memcpy(description->uuid, uuid.bytes, sizeof(description->uuid));
  size_t total = 0;
  if (const CUresult r = driver_.cuDeviceTotalMem_v2(&total, device); r != CUDA_SUCCESS) return r;
  description->total_memory_bytes = total;
  for (uint32_t i = 1; i < shm::kNumDeviceAttributes; ++i) {
    int value = 0;
    if (driver_.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), device) != CUDA_SUCCESS) continue;
    description->attribute[i] = value;
    description->attribute_valid[i] = 1;
  }
  for (const Promise& promise : kPromises) {
    if (!Holds(promise) || promise.attribute >= static_cast<int>(shm::kNumDeviceAttributes)) continue;
    description->attribute[promise.attribute] = promise.value;
    description->attribute_valid[promise.attribute] = 1;
  }
  // What other programs of the executor may open is named by us (shared_objects.h), whatever the driver can export.
  const int has_virtual_memory = description->attribute[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED];
  description->attribute[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = has_virtual_memory != 0;
  description->attribute[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = 1;
  description->pci_domain = static_cast<uint32_t>(description->attribute[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID]);
  description->pci_bus = static_cast<uint32_t>(description->attribute[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID]);
  description->pci_device = static_cast<uint32_t>(description->attribute[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]);
  CUcontext context = nullptr;
  if (const CUresult r = Context(AreAlike(like, ordinal) ? like : ordinal, &context); r != CUDA_SUCCESS) return r;
  driver_.cuCtxSetCurrent(context);
  if (driver_.cuCtxGetStreamPriorityRange != nullptr) {
    driver_.cuCtxGetStreamPriorityRange(&description->lowest_stream_priority, &description->highest_stream_priority);
  }
  for (int other = 0; other < count() && driver_.cuDeviceCanAccessPeer != nullptr; ++other) {
    int can = 0;
    if (other != ordinal && driver_.cuDeviceCanAccessPeer(&can, device, devices_[other].handle) == CUDA_SUCCESS &&
        can != 0) {
      description->can_access_peer |= uint64_t{1} << other;
    }
  }
  return CUDA_SUCCESS;
}

bool Devices::AreAlike(int some, int other) const {
  for (const auto attribute :
       {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR}) {
    int of_some = 0;
    int of_other = 0;
    if (driver_.cuDeviceGetAttribute(&of_some, attribute, device(some)) != CUDA_SUCCESS ||
        driver_.cuDeviceGetAttribute(&of_other, attribute, device(other)) != CUDA_SUCCESS || of_some != of_other) {
      return false;
    }
  }
  return true;
}

void Devices::Release() {
  const std::lock_guard lock(mutex_);
  for (Device& device : devices_) {
    device.completions->Clear();
    if (device.context != nullptr) driver_.cuDevicePrimaryCtxRelease_v2(device.handle);
    device.context = nullptr;
  }
}

}  // namespace tally::server
