// What executors of one tallyd say to one another: how one opens what a session of another has offered
// (proto/shm/records_sharing_abi.h). The socket is RUNTIME_DIR/door-PID, of the executor with that pid.
//
//   executor of who opens                     executor of who offered
//     | -- DoorRequest ----------------------> |  one a connection
//     | <- DoorReply (+ a descriptor) -------- |  and the connection ends
//
// Trust: both ends are processes of tallyd's own user (SO_PEERCRED), which answer for whose sessions they serve: the
// owner in a request is what tallyd has told that executor, never a client's word. The name in it is a client's, and is
// looked up.
//
// Behaviour lives in server/executor/session/sharing_door.cc and foreign_objects.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/shm/records_memory_abi.h"
#include "proto/shm/records_sharing_abi.h"

namespace tally::control {

inline constexpr const char* kDoorPrefix = "door-";
inline constexpr uint32_t kDoorMagic = 0x524F4F44;  // "DOOR" in memory
inline constexpr uint32_t kDoorVersion = 1;
inline constexpr size_t kDoorOwnerBytes = 160;    // NUL-terminated; equal: sessions of both may share
inline constexpr size_t kDriverHandleBytes = 64;  // of a CUipcMemHandle, a CUipcEventHandle

struct DoorRequest {
  uint32_t magic;
  uint32_t version;
  char owner[kDoorOwnerBytes];
  shm::SharedName name;
};
static_assert(sizeof(DoorRequest) == 8 + 160 + 64);

// kPhysical: one descriptor comes along, as the driver has exported it. Else the handle is the driver's.
struct DoorReply {
  uint32_t magic;
  uint32_t version;
  uint32_t cuda_result;  // CUresult; 0: all below holds
  uint32_t device;       // ordinal, the same in all executors of a tallyd
  uint64_t size_bytes;
  shm::PhysicalProperties properties;  // kPhysical
  uint8_t handle[kDriverHandleBytes];  // kAllocation, kEvent
};
static_assert(sizeof(DoorReply) == 24 + 24 + 64);

}  // namespace tally::control
