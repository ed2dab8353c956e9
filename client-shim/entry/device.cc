// CUDA manual: Device Management, and the parts of Peer Context Memory Access that are about devices. Everything is
// answered from the description that cuInit fetched: libraries read some 110 attributes per device and copy of the
// runtime.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

CUresult FindDevice(CUdevice device, const shm::DeviceDescription** description) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!process->IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *description = &process->device(device);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetCount(int* count) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = process->num_devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(ordinal, &description); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  const auto id = static_cast<uint32_t>(attrib);
  if (pi == nullptr || id >= shm::kNumDeviceAttributes || description->attribute_valid[id] == 0)
    return CUDA_ERROR_INVALID_VALUE;
  *pi = description->attribute[id];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(len), "%.*s", static_cast<int>(sizeof(description->name)), description->name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  static_assert(sizeof(uuid->bytes) == sizeof(description->uuid));
  std::memcpy(uuid->bytes, description->uuid, sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return entry::cuDeviceGetUuid_v2(uuid, dev); }

CUresult cuDeviceGetLuid(char*, unsigned int*, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  return CUDA_ERROR_NOT_SUPPORTED;  // a Windows notion; native Linux says the same
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = description->total_memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  if (const CUresult result = entry::cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
      result != CUDA_SUCCESS)
    return result;
  return entry::cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int32_t* attribute = description->attribute;
  prop->maxThreadsPerBlock = attribute[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  for (int axis = 0; axis < 3; ++axis) {
    prop->maxThreadsDim[axis] = attribute[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis];
    prop->maxGridSize[axis] = attribute[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis];
  }
  prop->sharedMemPerBlock = attribute[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK];
  prop->totalConstantMemory = attribute[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY];
  prop->SIMDWidth = attribute[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  prop->memPitch = attribute[CU_DEVICE_ATTRIBUTE_MAX_PITCH];
  prop->regsPerBlock = attribute[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
  prop->clockRate = attribute[CU_DEVICE_ATTRIBUTE_CLOCK_RATE];
  prop->textureAlign = attribute[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (pciBusId == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  // Domain:bus:device.function, as the native driver prints it.
  std::snprintf(pciBusId, static_cast<size_t>(len), "%04X:%02X:%02X.0", description->pci_domain, description->pci_bus,
                description->pci_device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, device = 0;
  // [domain]:[bus]:[device].[function], or without function, or without domain.
  if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (std::sscanf(pciBusId, "%x:%x", &bus, &device) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (CUdevice candidate = 0; candidate < process->num_devices(); ++candidate) {
    const shm::DeviceDescription& description = process->device(candidate);
    if (description.pci_domain != domain || description.pci_bus != bus || description.pci_device != device) continue;
    *dev = candidate;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  const shm::DeviceDescription* description = nullptr;
  const shm::DeviceDescription* peer = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (const CUresult result = FindDevice(peerDev, &peer); result != CUDA_SUCCESS) return result;
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int ordinal = CurrentProcess()->server_ordinal(peerDev);
  *canAccessPeer = dev != peerDev && (description->can_access_peer >> ordinal & 1) != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                          unsigned int count, CUdevice srcDevice, CUdevice dstDevice) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(srcDevice, &description); result != CUDA_SUCCESS) return result;
  if (const CUresult result = FindDevice(dstDevice, &description); result != CUDA_SUCCESS) return result;
  if (capabilities == nullptr || operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::fill_n(capabilities, count, 0u);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                           unsigned int count, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (capabilities == nullptr || operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::fill_n(capabilities, count, 0u);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  const shm::DeviceDescription* description = nullptr;
  if (const CUresult result = FindDevice(dev, &description); result != CUDA_SUCCESS) return result;
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pi = 0;
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
