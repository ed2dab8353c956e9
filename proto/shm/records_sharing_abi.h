// Records with which programs share memory and events, and devices one another's memory. Conventions: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

// What one program gives to another so that both use the same object: the 64 bytes of a CUipcMemHandle or
// CUipcEventHandle, or the contents of the memfd that stands for an exported handle. Whoever holds the token may open
// it, in the executor that gave it out, and in others of the same owner by the driver's own handles.
enum class SharedKind : uint32_t {
  kAllocation = 1,  // cuMemAlloc, or from a pool
  kEvent = 2,       // cuEventCreate with CU_EVENT_INTERPROCESS
  kPhysical = 3,    // cuMemCreate
  kPool = 4,        // cuMemPoolCreate with a handle type
};
inline constexpr uint64_t kSharedMagic = 0x63706979'6c6c6174;  // "tallyipc"
struct SharedName {
  uint64_t magic;
  uint64_t executor;  // who can resolve it
  uint64_t token[2];  // cannot be guessed
  uint32_t kind;      // SharedKind
  uint32_t process;   // the executor's pid, as others of its tallyd know it (proto/control/sharing_door_abi.h)
  uint32_t reserved[6];
};
static_assert(sizeof(SharedName) == 64);

struct Offer {
  uint32_t kind;  // SharedKind
  uint32_t reserved;
  uint64_t what;  // base address of an allocation, or a handle
};
static_assert(sizeof(Offer) == 16);

struct OpenShared {
  SharedName name;
  uint64_t handle;         // kEvent: named by the client. kAllocation from a pool: the opened pool. Else 0
  uint32_t enables_peers;  // kAllocation: 1, the current device may need access to the memory's
  uint32_t reserved;
};
static_assert(sizeof(OpenShared) == 80);

struct OpenedShared {
  uint64_t value;       // kAllocation: its address; kPhysical, kPool: a handle
  uint64_t size_bytes;  // kAllocation
  uint32_t device;      // ordinal
  uint32_t num_opens;   // kAllocation: how often this program has it open now
};
static_assert(sizeof(OpenedShared) == 24);

// Kernels on `from` may use memory of `to`.
struct EnablePeer {
  uint32_t from;
  uint32_t to;
};
static_assert(sizeof(EnablePeer) == 8);

}  // namespace tally::shm
