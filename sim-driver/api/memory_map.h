// Every piece of memory that the software device may touch, by address.
//
// Device memory is memory of this process, so a device address is a real address: it lies in a window (device_window.h)
// that is mapped at first use, by preference at kWindowStart. The window is one mapping whatever comes and goes: a
// process may have some 65,000. Addresses in it are handed out in rising order and come back only when the whole window
// has been used, so that a use of freed memory meets nothing alive; or at once, as on GPUs, where ReuseAddresses() says
// so. Host memory that the program pins or registers is entered here as well, at its own address.
//
// A range is exactly as long as was asked for; at least one byte between two of them belongs to none.
// Sizes in bytes. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "sim-driver/api/device_window.h"
#include "sim-driver/engine/machine.h"

namespace tally::sim_driver {

enum class MemoryKind : uint8_t {
  kDevice,      // cuMemAlloc, module globals, pools
  kManaged,     // cuMemAllocManaged
  kPinned,      // cuMemHostAlloc: ours
  kRegistered,  // cuMemHostRegister: the program's
  kReserved,    // cuMemAddressReserve: an address range without memory
  kMapped,      // cuMemMap: inside a reserved range
  kImported,    // cuIpcOpenMemHandle: another process's memory, inside a reserved range of its own
};

inline constexpr uint32_t kAllDevices = ~uint32_t{0};

struct MemoryRegion {
  uint64_t base = 0;
  uint64_t num_bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  // Bit n: for kernels of device n. Copies may use what any device may.
  uint32_t readable_by = kAllDevices;
  uint32_t writable_by = kAllDevices;
  int device = 0;          // ordinal; for host memory the device of the context that made it
  uint64_t context = 0;    // id of the owning context; 0: none (VMM)
  uint64_t buffer_id = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID, never used twice
  uint64_t pool = 0;       // handle of the pool that it came from; 0: none
  uint32_t flags = 0;      // cuMemHostAlloc / cuMemHostRegister / cuMemAllocManaged flags
  bool is_graph_owned = false;
  bool is_module_owned = false;
  bool is_exported = false;   // cuIpcGetMemHandle named it
  bool synchronizes = false;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS

  uint64_t end() const { return base + num_bytes; }
  bool IsReadableBy(int device_ordinal) const { return (readable_by >> device_ordinal & 1) != 0; }
  bool IsWritableBy(int device_ordinal) const { return (writable_by >> device_ordinal & 1) != 0; }
  bool IsHost() const { return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered; }
};

class MemoryMap {
 public:
  static constexpr uint64_t kWindowStart = DeviceWindow::kPreferredStart;
  static constexpr uint64_t kGranularity = 512;          // alignment of every allocation, as native
  static constexpr uint64_t kPageGranularity = 2 << 20;  // of VMM reservations and mappings

  // The map of this process. Never destroyed.
  static MemoryMap& Get();

  // Takes addresses from the window and enters `shape` there (its base is ignored). `alignment` is a power of two; 0
  // means what a native driver would give. Fresh memory reads as zero. Empty when the window is full. Accounting is the
  // caller's (device.h).
  std::optional<uint64_t> Allocate(MemoryRegion shape, uint64_t alignment);
  // The same at exactly `shape.base`. False when that is outside the window or not free.
  bool AllocateAt(MemoryRegion shape);
  // From now on the lowest free addresses are handed out, those of freed memory first.
  void ReuseAddresses();
  // Enters memory that is already there. False when it overlaps a live range.
  bool Insert(const MemoryRegion& range);
  // Removes the range that starts at `base`; for window memory the pages go back to the system.
  std::optional<MemoryRegion> Remove(uint64_t base);
  // Removes and returns everything of one context (but not VMM, which has none).
  std::vector<MemoryRegion> RemoveContext(uint64_t context);

  // The range that holds `address` (a mapped one before the reserved one around it).
  std::optional<MemoryRegion> Find(uint64_t address) const;
  // Whether all of [address, address+num_bytes) is memory that copies may read (or write), possibly over several
  // adjoining mappings. True for zero bytes at any address.
  bool IsAccessible(uint64_t address, uint64_t num_bytes, bool is_write) const;
  // Changes fields of the range that starts at `base`; false when there is none.
  template <typename Change>
  bool Update(uint64_t base, Change change) {
    const std::unique_lock lock(mutex_);
    const auto found = ranges_.find(base);
    if (found == ranges_.end()) return false;
    change(found->second);
    BumpLocked();
    return true;
  }
  // All mappings inside [begin, end), in order of address.
  std::vector<MemoryRegion> MappedWithin(uint64_t begin, uint64_t end) const;

  // Whether the piece lies inside of one kReserved range, whatever is mapped there.
  bool IsReserved(uint64_t address, uint64_t num_bytes) const;

  // Enters `range`, which lies in a kReserved range, and puts pages of `memory_fd` (a memfd) there: from `fd_offset` on
  // at the page that holds its first byte.
  bool MapPhysical(const MemoryRegion& range, int memory_fd, uint64_t fd_offset);
  // False: none of that kind starts there.
  bool UnmapPhysical(uint64_t base, MemoryKind kind);

  // Tells `lookup` of every removal until it is taken off again; see ContextMemory.
  void AddLookup(MemoryLookup* lookup);
  void RemoveLookup(MemoryLookup* lookup);

  // What a context may touch has changed: nobody may rely on an earlier lookup.
  void ForgetLookups() {
    const std::unique_lock lock(mutex_);
    BumpLocked();
  }

  bool IsInWindow(uint64_t address) const { return window_.Contains(address); }
  // The file behind device memory, for others to map.
  const DeviceWindow& window() const { return window_; }
  static uint64_t NextBufferId();

 private:
  MemoryMap();
  void BumpLocked();
  bool IsReservedLocked(uint64_t address, uint64_t num_bytes) const;
  std::optional<uint64_t> FindGapLocked(uint64_t num_bytes, uint64_t alignment);
  void ReturnPagesLocked(uint64_t begin, uint64_t end);
  bool OverlapsLocked(const std::map<uint64_t, MemoryRegion>& ranges, uint64_t begin, uint64_t end) const;

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, MemoryRegion> ranges_;    // all but kReserved: these never overlap
  std::map<uint64_t, MemoryRegion> reserved_;  // kReserved
  DeviceWindow window_;
  uint64_t cursor_;
  bool reuses_addresses_ = false;
  std::vector<MemoryLookup*> lookups_;
};

// What the kernels of one context may touch: host memory, mappings as cuMemSetAccess said for its device, and device
// memory of its own device and of those that it was given access to. One object per context, since the engine tells
// contexts apart by it.
class ContextMemory final : public MemoryLookup {
 public:
  explicit ContextMemory(int device) : device_(device) { MemoryMap::Get().AddLookup(this); }
  ~ContextMemory() override { MemoryMap::Get().RemoveLookup(this); }
  ContextMemory(const ContextMemory&) = delete;
  ContextMemory& operator=(const ContextMemory&) = delete;

  MemoryRange Find(uint64_t address) const override;
  std::shared_ptr<const Image> FindImage(uint64_t object) const override;

  // cuCtxEnablePeerAccess. False: it is so already.
  bool SetPeer(int device, bool is_enabled);

 private:
  const int device_;
  std::atomic<uint32_t> peers_{0};  // bit n: device n
};

}  // namespace tally::sim_driver
