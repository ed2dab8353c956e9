// Which addresses belong to a session: device memory, shared pinned memory, module globals.
//
// Every copy, fill and free is checked against it, so that one tenant cannot name another's memory in a call. (A kernel
// can still reach what shares its address space: architecture.md section 2 says who may share a domain.) Thread-safe:
// channels and the socket thread use it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "server/executor/session/memory_quota.h"

namespace tally::server {

enum class MemoryKind : uint8_t {
  kDevice,   // cuMemAlloc, pitched ones too
  kAsync,    // from a pool
  kPinned,   // shared with the client, host or managed
  kGlobal,   // a variable of a loaded image
  kGraph,    // of a memory node: graph_memory.h
  kOpened,   // another session's, opened by its name (shared_objects.h)
  kMapped,   // cuMemMap: inside a reserved range (virtual_memory.h); adjoining ones are one piece to Find
  kForeign,  // of another executor, opened by the driver (foreign_objects.h)
};

struct MemoryRange {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  uint32_t context = 0;         // of the client, when it was made
  const void* owner = nullptr;  // kGlobal, kGraph: what it goes with; null: kGraph whose graph is gone
  uint64_t access_devices = 0;  // kMapped: bit n, device n was given access
  SharedCharge charge{};        // what counts for it, for as long as somebody has it; null: nothing does
};

class MemoryMap {
 public:
  // False if it overlaps another range or wraps around. Graph memory whose graph is gone gives way: the driver knows
  // better whether it was freed.
  bool Add(const MemoryRange& range);
  // The range that contains all of [address, address + size_bytes), if any; the first of several adjoining mappings.
  // An empty piece may be anywhere inside. A mapping that no device may access contains nothing.
  std::optional<MemoryRange> Find(uint64_t address, uint64_t size_bytes) const;
  // Takes out the range that starts at `address` and is of one of the kinds.
  std::optional<MemoryRange> Take(uint64_t address, MemoryKind kind, MemoryKind or_kind);
  // Whatever goes with `owner`, but the addresses in `but` stay, without an owner.
  void RemoveOwned(const void* owner, const std::set<uint64_t>& but = {});
  // The mapping that contains `address`, accessible or not.
  std::optional<MemoryRange> Mapping(uint64_t address) const;
  // The mappings that fill exactly the piece, in order of address. Empty: they do not.
  std::vector<MemoryRange> Mappings(uint64_t address, uint64_t size_bytes) const;
  // The mappings inside of the piece, with holes between them or not; nullopt: one lies across its end, or there is
  // something else.
  std::optional<std::vector<MemoryRange>> MappingsWithin(uint64_t address, uint64_t size_bytes) const;
  // Notes that a device may access the piece's mappings, or may not.
  void SetAccess(uint64_t address, uint64_t size_bytes, int device, bool is_allowed);
  // Memory without an address of its own: cuMemCreate's, which counts wherever it is mapped, if at all; arrays. For
  // the figures only: limits are memory_quota.h's.
  void CountPhysical(uint64_t size_bytes, bool added);
  std::vector<MemoryRange> Ranges() const;
  // The range that holds the address, mappings too, accessible or not.
  std::optional<MemoryRange> RangeAt(uint64_t address) const;
  // Whether `judge` says so of one of the ranges that have a byte in [begin, end). It must not call the map.
  template <typename Judge>
  bool AnyWithin(uint64_t begin, uint64_t end, Judge judge) const {
    const std::lock_guard lock(mutex_);
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->first + std::prev(at)->second.size_bytes > begin) --at;
    for (; at != ranges_.end() && at->first < end; ++at) {
      if (judge(at->second)) return true;
    }
    return false;
  }
  // Another number after every change of the ranges: what was found before may no longer hold. Takes no lock. Who asks
  // before it looks at ranges notices what changes while it looks.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  // Sum of device, pool and physical memory and arrays; of pinned memory.
  uint64_t device_bytes() const;
  uint64_t pinned_bytes() const;

 private:
  void DropOrphansLocked(uint64_t begin, uint64_t end);
  void Count(const MemoryRange& range, bool added);
  void NoteChangeLocked() { generation_.fetch_add(1, std::memory_order_release); }
  bool ReachesLocked(std::map<uint64_t, MemoryRange>::const_iterator first, uint64_t end) const;

  mutable std::mutex mutex_;
  std::map<uint64_t, MemoryRange> ranges_;  // by address, disjoint
  uint64_t device_bytes_ = 0;
  uint64_t pinned_bytes_ = 0;
  std::atomic<uint64_t> generation_ = 1;
};

}  // namespace tally::server
