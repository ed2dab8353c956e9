// Records about memory: allocations, copies and fills, virtual memory management. Conventions: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

struct Allocate {
  uint64_t size_bytes;  // or width when pitched
  uint64_t height;      // 0: not pitched
  uint32_t element_bytes;
  uint32_t reserved;
};
static_assert(sizeof(Allocate) == 24);

struct AllocateAsync {
  uint64_t size_bytes;
  uint64_t pool;  // 0: the current pool
  uint64_t stream;
};
static_assert(sizeof(AllocateAsync) == 24);

struct FreeAsync {
  uint64_t address;
  uint64_t stream;
};
static_assert(sizeof(FreeAsync) == 16);

// Where one side of a copy is.
enum class Place : uint32_t {
  kAddress = 0,  // device or shared pinned memory of this session
  kArena = 1,    // offset into this channel's arena
  kInline = 2,   // bytes after the struct (source only; at most kMaxInlineBytes)
  kArray = 3,    // a CUarray handle (kCopyBox only)
};
inline constexpr uint32_t kMaxInlineBytes = 64 * 1024;

struct Copy {
  uint64_t destination;  // address or arena offset
  uint64_t source;
  uint64_t size_bytes;
  uint64_t stream;
  uint32_t destination_place;  // Place
  uint32_t source_place;
};
static_assert(sizeof(Copy) == 40);

// One side of a box copy, as CUDA_MEMCPY3D has it.
struct BoxSide {
  uint64_t base;  // address, arena offset or array handle; ignored for kInline
  uint64_t x_bytes, y, z;
  uint64_t pitch_bytes;  // 0: tight
  uint64_t height;       // rows per slice, 0: tight
  uint32_t place;        // Place
  uint32_t lod;
};
static_assert(sizeof(BoxSide) == 56);

struct CopyBox {
  BoxSide destination;
  BoxSide source;
  uint64_t width_bytes, height, depth;
  uint64_t stream;
  uint32_t inline_bytes;  // after the struct when the source is kInline
  uint32_t reserved;
};
static_assert(sizeof(CopyBox) == 152);

struct Fill {
  uint64_t address;
  uint64_t pitch_bytes;  // ignored when height is 1
  uint64_t width;        // elements
  uint64_t height;
  uint64_t stream;
  uint32_t value;
  uint32_t element_bytes;  // 1, 2 or 4
};
static_assert(sizeof(Fill) == 48);

// Whole pieces of the address space: what cuMemAddressFree, cuMemUnmap and cuMemSetAccess name.
struct AddressSpan {
  uint64_t address;
  uint64_t size_bytes;
};
static_assert(sizeof(AddressSpan) == 16);

struct ReserveAddresses {
  uint64_t size_bytes;
  uint64_t alignment_bytes;  // 0: the driver's
  uint64_t wish;             // an address the caller would like, 0 if none
  uint64_t flags;
};
static_assert(sizeof(ReserveAddresses) == 32);

// CUmemAllocationProp without pointers.
struct PhysicalProperties {
  uint32_t type;             // CUmemAllocationType
  uint32_t requested_types;  // CUmemAllocationHandleType, or-ed
  uint32_t location_type;    // CUmemLocationType
  uint32_t device;           // ordinal as in kDescribeDevices, where the location is a device
  uint32_t usage;
  uint8_t compression_type;
  uint8_t gpu_direct_rdma;
  uint16_t reserved;
};
static_assert(sizeof(PhysicalProperties) == 24);

struct CreatePhysical {
  PhysicalProperties properties;
  uint64_t size_bytes;
  uint64_t flags;
};
static_assert(sizeof(CreatePhysical) == 40);

struct MapPhysical {
  uint64_t address;
  uint64_t size_bytes;
  uint64_t offset_bytes;
  uint64_t handle;
  uint64_t flags;
};
static_assert(sizeof(MapPhysical) == 40);

struct AccessGrant {
  uint32_t device;  // ordinal
  uint32_t flags;   // CUmemAccess_flags
};
static_assert(sizeof(AccessGrant) == 8);

struct GetAccess {
  uint64_t address;
  uint32_t device;
  uint32_t reserved;
};
static_assert(sizeof(GetAccess) == 16);

}  // namespace tally::shm
