// The activity page: what the executors of one machine tell each other without a message.
//
// One small file, `activity` in tallyd's runtime directory (mode 0600, shared by all executors of that tallyd and by
// nobody else; it outlives a restart of tallyd). A high-priority executor says here, per device, that it has work on
// the GPU; best-effort executors read one cache line before they dispatch.
//
//      high-priority executor                          best-effort executor
//      at its first work there: num_present += 1   ->  num_present != 0: never far ahead of the GPU from now on
//      busy[device] 0 -> 1, num_busy += 1, busy_bell -> num_busy != 0: hold back, and ask what runs to yield
//      opens_at_ns, busy 1 -> 0, num_busy -= 1, bell -> wait until opens_at_ns, then dispatch
//
// TRUST: executors are Tally's own processes and run as one user; clients never see this page. Still a dead executor
// must not close the gate for ever: a waiter that has waited for long looks for slots whose process is gone and takes
// their share of num_busy and num_present back (exchange on `busy` and `present` decides who does it, so it is done
// once).
//
// Behaviour lives in server/executor/dispatch/activity_page.h; tests/proto/activity_abi_test.cc pins the layout.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tally::shm {

inline constexpr uint32_t kActivityMagic = 0x56544341;  // "ACTV"
inline constexpr uint32_t kActivityVersion = 4;
inline constexpr uint32_t kActivityDevices = 64;
inline constexpr uint32_t kActivitySlots = 32;  // high-priority executors at one time

// One device, one cache line.
struct alignas(64) DeviceActivity {
  std::atomic<uint32_t> num_busy;           // high-priority executors with work on this device
  std::atomic<uint32_t> bell;               // futex: incremented whenever num_busy falls to 0
  std::atomic<uint32_t> num_waiting;        // best-effort threads asleep on `bell`
  std::atomic<uint32_t> num_awaiting_busy;  // threads asleep on `busy_bell`
  // CLOCK_MONOTONIC nanoseconds before which best-effort work stays back though nothing runs (the hold-off); 0: none.
  std::atomic<uint64_t> opens_at_ns;
  std::atomic<uint32_t> busy_bell;      // futex: incremented whenever num_busy leaves 0
  std::atomic<uint32_t> num_present;    // living high-priority executors that have ever had work on this device
  std::atomic<uint64_t> busy_since_ns;  // CLOCK_MONOTONIC nanoseconds when num_busy last left 0
  uint8_t pad[24];
};
static_assert(sizeof(DeviceActivity) == 64 && offsetof(DeviceActivity, opens_at_ns) == 16 &&
              offsetof(DeviceActivity, busy_bell) == 24 && offsetof(DeviceActivity, busy_since_ns) == 32);

// One high-priority executor.
struct alignas(64) ActivitySlot {
  std::atomic<uint32_t> owner_pid;  // 0: free
  std::atomic<uint32_t> reserved;
  std::atomic<uint64_t> busy;     // bit n: this executor is counted in device n's num_busy
  std::atomic<uint64_t> present;  // bit n: likewise in its num_present
  uint8_t pad[40];
};
static_assert(sizeof(ActivitySlot) == 64);

struct ActivityPage {
  std::atomic<uint32_t> magic;  // kActivityMagic once the page is initialised
  uint32_t version;
  uint8_t pad[56];
  DeviceActivity device[kActivityDevices];
  ActivitySlot slot[kActivitySlots];
};
static_assert(sizeof(ActivityPage) == 64 + 64 * kActivityDevices + 64 * kActivitySlots);
static_assert(offsetof(ActivityPage, device) == 64 && offsetof(ActivityPage, slot) == 64 + 64 * kActivityDevices);

}  // namespace tally::shm
