// Ids of what a client holds: objects of the driver, streams, contexts.
//
// HANDLES. What the program holds as CUstream, CUevent, ... is a 64-bit id of this session, never a server pointer:
//     bits 47-40 HandleKind | 39-32 generation | bit 31: 1 = named by the server, 0 = by the client | 30-4 index | 3-0
//     zero
// Streams also have CUDA's reserved values 0 and 1 (legacy) and 2 (per-thread: of this channel).
//
// CONTEXTS are small integers chosen by the client: 0..63 is the primary context of device n, 64.. are created ones.
// All contexts of one device share the executor's one real context; each has a legacy stream of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::shm {

enum class HandleKind : uint8_t {
  kNone = 0,
  kStream = 1,
  kEvent = 2,
  kModule = 3,
  kLibrary = 4,
  kFunction = 5,  // CUfunction, and CUkernel where the two are interchangeable for the caller
  kKernel = 6,    // CUkernel
  kGraph = 7,
  kGraphNode = 8,
  kGraphExec = 9,
  kMemPool = 10,
  kArray = 11,
  kMipmappedArray = 12,
  kLinkState = 13,
  kContext = 14,  // client-side only: the value of a CUcontext is Handle(kContext, index)
  kUserObject = 18,
  kPhysicalMemory = 15,  // CUmemGenericAllocationHandle
};
inline constexpr size_t kNumHandleKinds = 19;

inline constexpr uint64_t kServerNamedBit = uint64_t{1} << 31;
inline constexpr uint64_t kMaxHandleIndex = (uint64_t{1} << 27) - 1;
constexpr uint64_t MakeHandle(HandleKind kind, uint8_t generation, bool server_named, uint64_t index) {
  return static_cast<uint64_t>(kind) << 40 | static_cast<uint64_t>(generation) << 32 |
         (server_named ? kServerNamedBit : 0) | index << 4;
}
constexpr HandleKind HandleKindOf(uint64_t handle) { return static_cast<HandleKind>(handle >> 40 & 0xff); }
constexpr uint64_t HandleIndexOf(uint64_t handle) { return (handle & 0x7fffffff) >> 4; }
constexpr bool IsServerNamed(uint64_t handle) { return (handle & kServerNamedBit) != 0; }

inline constexpr uint64_t kLegacyStream = 1;  // 0 means the same
inline constexpr uint64_t kPerThreadStream = 2;

inline constexpr uint32_t kNoContext = 0xffffffff;
inline constexpr uint32_t kMaxDevices = 64;
inline constexpr uint32_t kMaxContexts = 1024;

}  // namespace tally::shm
