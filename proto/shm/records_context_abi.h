// Records about devices and contexts, and of refusals. Conventions: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

// Device as the client sees it. Attributes the shim cannot honour are already answered "no" by the executor.
inline constexpr uint32_t kNumDeviceAttributes =
    160;  // indexed by CUdevice_attribute; unknown ones are attribute_valid 0
inline constexpr uint32_t kHiddenDevice = UINT32_MAX;
struct DeviceDescription {
  char name[256];
  uint8_t uuid[16];
  uint64_t total_memory_bytes;
  uint32_t pci_domain, pci_bus, pci_device;
  // The program sees devices by this, and those that are alike as they are told of. kHiddenDevice: the session may not
  // use it, and all else is 0.
  uint32_t order;
  int32_t attribute[kNumDeviceAttributes];
  uint8_t attribute_valid[kNumDeviceAttributes];
  int32_t lowest_stream_priority;   // cuCtxGetStreamPriorityRange: numerically greatest
  int32_t highest_stream_priority;  // numerically least
  uint64_t can_access_peer;         // bit n: device n, none that is hidden
};
static_assert(sizeof(DeviceDescription) == 1112);

struct OpenContext {
  uint32_t context;  // index chosen by the client
  uint32_t device;   // ordinal as in kDescribeDevices
  uint32_t flags;    // CUctx_flags
  uint32_t reserved;
};
static_assert(sizeof(OpenContext) == 16);

struct CloseContext {
  uint32_t context;
  uint32_t is_reset;  // 1: cuDevicePrimaryCtxReset
};
static_assert(sizeof(CloseContext) == 8);

struct NoteRefusal {
  uint32_t symbol_index;  // row of driver_api.tsv
  uint32_t reserved;
};
static_assert(sizeof(NoteRefusal) == 8);

}  // namespace tally::shm
