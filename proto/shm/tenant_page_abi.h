// The tenant page: what the executors of one tenant tell each other about what it holds and has used of each GPU.
//
// One small file for each tenant with a quota or a cap, in `tenants` of tallyd's runtime directory (mode 0600). The
// executors that serve the tenant share it. It outlives a restart of tallyd, who removes it when it is of no use.
//
//      executor A                                executor B
//      slot[0].held_bytes[gpu] += 1 GiB          slot[1].held_bytes[gpu] += 2 GiB
//               \__ the tenant holds the sum of all slots: 3 GiB __/
//
// An executor writes to its own slot only. It adds to it before the driver is asked, with the page locked (flock), so
// that no two add what fits for one of them alone; it subtracts after the driver has freed, without the lock. While it
// lives it holds a lock on the file's byte of its slot (F_OFD_SETLK). The kernel gives that up however the process
// ends, in the middle of anything: whoever finds no room takes back the slots that nobody holds the lock of.
//
// TRUST: executors are Tally's own processes and run as one user; clients never see this page.
//
// Behaviour lives in server/executor/dispatch/tenant_page.h; tests/proto/tenant_page_abi_test.cc pins the layout.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tally::shm {

inline constexpr uint32_t kTenantPageMagic = 0x544E4E54;  // "TNNT"
inline constexpr uint32_t kTenantPageVersion = 1;
inline constexpr uint32_t kTenantDevices = 64;
inline constexpr uint32_t kTenantSlots = 64;  // executors of one tenant at one time

// One executor.
struct alignas(64) TenantSlot {
  std::atomic<uint64_t> held_bytes[kTenantDevices];  // of each device; 0: nothing, or nobody's slot
};
static_assert(sizeof(TenantSlot) == 8 * kTenantDevices);

struct TenantPage {
  std::atomic<uint32_t> magic;  // kTenantPageMagic once the page is initialised
  uint32_t version;
  uint8_t pad[56];
  // CLOCK_MONOTONIC nanoseconds until which the tenant's share of each device's time is used up
  // (scheduler/share_cap.h).
  std::atomic<int64_t> used_until_ns[kTenantDevices];
  TenantSlot slot[kTenantSlots];
};
static_assert(offsetof(TenantPage, used_until_ns) == 64 && offsetof(TenantPage, slot) == 64 + 8 * kTenantDevices);
static_assert(sizeof(TenantPage) == 64 + 8 * kTenantDevices + sizeof(TenantSlot) * kTenantSlots);

}  // namespace tally::shm
