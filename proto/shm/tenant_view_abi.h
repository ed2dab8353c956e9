// What a program may know of the machine without a session: its own tenant's GPUs, limits and processes. For our
// libnvidia-ml.so.1 (client-shim/nvml), so that nvidia-smi and its kin say what CUDA says.
//
//   client                          tallyd
//     | -- TenantViewRequest -----> |  on the clients' socket or that of a grant, in place of a HelloRequest
//     | <- TenantViewReply -------- |  (hangs up)
//
// Trust: as with a hello the tenant is that of the socket; without a grant it is a name of the caller's own user. Other
// tenants are in no reply.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/shm/handshake_abi.h"

namespace tally::shm {

inline constexpr uint32_t kViewMagic = 0x57454956;  // "VIEW" in memory
inline constexpr size_t kViewGpus = 16;             // others are not told of
inline constexpr size_t kViewProcesses = 64;        // likewise

struct TenantViewRequest {
  uint32_t magic;             // kViewMagic
  uint32_t protocol_version;  // kProtocolVersion
  char tenant_name[kTenantNameBytes];
  uint64_t device_memory_bytes;  // as in HelloRequest
};
static_assert(sizeof(TenantViewRequest) == 80);

struct ViewGpu {
  uint8_t uuid[16];  // as CUDA says
  uint64_t total_memory_bytes;
  uint64_t limit_bytes;  // of the tenant; 0: none
  uint64_t held_bytes;   // by it
  uint64_t busy_ns;      // of its sessions that run, ever
  uint32_t pci_domain, pci_bus, pci_device;
  uint32_t capability;  // 90 for 9.0
  char name[64];
};
static_assert(sizeof(ViewGpu) == 128);

struct ViewProcess {
  int32_t pid;  // as tallyd sees it; 0: it cannot
  uint32_t reserved;
  uint64_t held_bytes;  // of all GPUs
};
static_assert(sizeof(ViewProcess) == 16);

struct TenantViewReply {
  uint32_t magic;             // kViewMagic
  uint32_t protocol_version;  // tallyd's own
  uint32_t status_code;       // tally::StatusCode
  uint32_t driver_version;    // CUDA's: 13000 for 13.0
  uint32_t num_gpus;          // 0: no executor has told tallyd yet
  uint32_t num_processes;
  uint64_t now_ns;  // CLOCK_MONOTONIC, of busy_ns
  ViewGpu gpu[kViewGpus];
  ViewProcess process[kViewProcesses];
};
static_assert(sizeof(TenantViewReply) == 32 + 128 * kViewGpus + 16 * kViewProcesses);

}  // namespace tally::shm
