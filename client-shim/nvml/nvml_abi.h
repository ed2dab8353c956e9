// What of NVIDIA's Management Library we answer ourselves: its structures and codes, as its documentation has them
// (https://docs.nvidia.com/deploy/nvml-api). NVIDIA's own header is not needed to build this.
#pragma once

#include <cstdint>

namespace tally::nvml {

enum Result : uint32_t {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kFunctionNotFound = 13,
  kArgumentVersionMismatch = 25,
  kUnknown = 999,
};

struct Memory {
  uint64_t total, free, used;
};
struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
};
inline constexpr uint32_t kMemoryV2 = sizeof(MemoryV2) | 2 << 24;
static_assert(sizeof(MemoryV2) == 40);

struct ProcessV1 {
  uint32_t pid;
  uint64_t used_bytes;
};
struct ProcessV2 {  // and of the third version
  uint32_t pid;
  uint64_t used_bytes;
  uint32_t gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessV1) == 16 && sizeof(ProcessV2) == 24);
inline constexpr uint32_t kNoInstance = UINT32_MAX;

struct Utilization {
  uint32_t gpu, memory;  // per cent
};

struct PciV2 {  // and of the first version, which ends before the last five fields
  char bus_id[16];
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  uint32_t reserved[4];
};
struct PciV3 {
  char legacy_bus_id[16];
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciV2) == 52 && sizeof(PciV3) == 68);

struct OpaqueDevice;
using Device = OpaqueDevice*;

}  // namespace tally::nvml
