// Initialisation, version, errors, devices.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sim-driver/api/array.h"
#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/texture_object.h"

using namespace tally::sim_driver;

TALLY_EXPORT CUresult CUDAAPI cuInit(unsigned int Flags) {
  TALLY_ENTRY({
    Require(Flags == 0, CUDA_ERROR_INVALID_VALUE);
    InitializeDevices();
  });
}

// NVRTC looks for tables of functions that CUDA does not document, and does without them; it crashes where nobody
// answers.
TALLY_EXPORT CUresult CUDAAPI cuGetExportTable(const void** ppExportTable, const CUuuid*) {
  TALLY_ENTRY({
    RequireOut(ppExportTable);
    *ppExportTable = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDriverGetVersion(int* driverVersion) {
  TALLY_ENTRY({
    RequireOut(driverVersion);
    *driverVersion = kDriverVersion;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGetErrorName(CUresult error, const char** pStr) {
  TALLY_ENTRY({
    RequireOut(pStr);
    *pStr = ErrorName(error);
    Require(*pStr != nullptr, CUDA_ERROR_INVALID_VALUE);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGetErrorString(CUresult error, const char** pStr) {
  TALLY_ENTRY({
    RequireOut(pStr);
    *pStr = ErrorSentence(error);
    Require(*pStr != nullptr, CUDA_ERROR_INVALID_VALUE);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(device);
    *device = DeviceAt(ordinal).ordinal();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetCount(int* count) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(count);
    *count = NumDevices();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetName(char* name, int len, CUdevice dev) {
  TALLY_ENTRY({
    const Device& device = DeviceAt(dev);
    RequireOut(name);
    Require(len > 0, CUDA_ERROR_INVALID_VALUE);
    const size_t length = std::min(device.name().size(), static_cast<size_t>(len) - 1);
    std::memcpy(name, device.name().data(), length);
    name[length] = '\0';
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  TALLY_ENTRY({
    const Device& device = DeviceAt(dev);
    RequireOut(uuid);
    *uuid = device.uuid();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid(uuid, dev); }

// LUIDs exist on Windows only.
TALLY_EXPORT CUresult CUDAAPI cuDeviceGetLuid(char*, unsigned int*, CUdevice dev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  TALLY_ENTRY({
    const Device& device = DeviceAt(dev);
    RequireOut(bytes);
    *bytes = device.total_bytes();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pi);
    const auto value = DeviceAt(dev).Attribute(attrib);
    Require(value.has_value(), CUDA_ERROR_INVALID_VALUE);
    *pi = *value;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    RequireOut(major);
    RequireOut(minor);
    *major = 9;
    *minor = 0;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  TALLY_ENTRY({
    const Device& device = DeviceAt(dev);
    RequireOut(prop);
    const auto value = [&device](CUdevice_attribute attribute) { return device.Attribute(attribute).value_or(0); };
    *prop = {};
    prop->maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    prop->maxThreadsDim[0] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
    prop->maxThreadsDim[1] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
    prop->maxThreadsDim[2] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
    prop->maxGridSize[0] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
    prop->maxGridSize[1] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
    prop->maxGridSize[2] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
    prop->sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    prop->totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    prop->memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    prop->clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    prop->textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  TALLY_ENTRY({
    const Device& device = DeviceAt(dev);
    RequireOut(pciBusId);
    const std::string id = device.PciBusId();
    Require(len > static_cast<int>(id.size()), CUDA_ERROR_INVALID_VALUE);
    std::memcpy(pciBusId, id.c_str(), id.size() + 1);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(dev);
    Require(pciBusId != nullptr, CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < NumDevices(); ++i) {
      const std::string id = DeviceAt(i).PciBusId();
      // With the domain, or without it.
      if (strcasecmp(id.c_str(), pciBusId) == 0 || strcasecmp(id.c_str() + 5, pciBusId) == 0) {
        *dev = i;
        return CUDA_SUCCESS;
      }
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    RequireOut(pi);
    Require(type == CU_EXEC_AFFINITY_TYPE_SM_COUNT, CUDA_ERROR_INVALID_VALUE);
    *pi = 0;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                                                 unsigned numChannels, CUdevice dev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    RequireOut(maxWidthInElements);
    Require(numChannels == 1 || numChannels == 2 || numChannels == 4, CUDA_ERROR_INVALID_VALUE);
    TexelFormatOf(format);
    *maxWidthInElements = kMaxLinearTexels;
  });
}

// Peers: software devices share the process's memory, but say no, as no program needs it.
TALLY_EXPORT CUresult CUDAAPI cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  TALLY_ENTRY({
    DeviceAt(dev);
    DeviceAt(peerDev);
    RequireOut(canAccessPeer);
    *canAccessPeer = dev != peerDev;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                                      CUdevice dstDevice) {
  TALLY_ENTRY({
    DeviceAt(srcDevice);
    DeviceAt(dstDevice);
    RequireOut(value);
    Require(srcDevice != dstDevice, CUDA_ERROR_INVALID_DEVICE);
    Require(attrib >= CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK &&
                attrib <= CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED,
            CUDA_ERROR_INVALID_VALUE);
    *value =
        attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuProfilerStart() {
  TALLY_ENTRY({ EnterContext(); });
}
TALLY_EXPORT CUresult CUDAAPI cuProfilerStop() {
  TALLY_ENTRY({ EnterContext(); });
}
