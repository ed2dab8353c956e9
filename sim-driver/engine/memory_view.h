// MemoryView: how a worker turns the addresses of device code into host pointers, with checks.
#pragma once

#include <array>
#include <cstdint>

#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// One per worker, not thread-safe. Remembers recently used allocations until the generation of the lookup changes.
class MemoryView {
 public:
  // Half-open [base, base + size): an access of n bytes at `address` is inside if address - base <= last(n).
  struct Range {
    uint64_t base = 0;
    uint64_t size_bytes = 0;
    bool is_writable = false;
    bool Contains(uint64_t address, uint32_t bytes) const {
      return size_bytes >= bytes && address - base <= size_bytes - bytes;
    }
  };

  // Serves `grid` from now on; null forgets everything.
  void Attach(const Grid* grid);

  // The slot that `instruction` used last, for a guess; emptied if anything was freed meanwhile. Call once per warp
  // instruction: what it returns stays valid during it.
  Range& RangeFor(const void* instruction) {
    if (Generation() != generation_) Forget();
    return ranges_[(reinterpret_cast<uintptr_t>(instruction) >> 6) % ranges_.size()];
  }
  // Looks `address` up and fills `range`; false if no allocation contains it.
  bool Find(uint64_t address, Range& range) const;
  uint64_t Generation() const { return grid_->request.memory->generation() + grid_->heap->generation(); }

 private:
  void Forget();

  const Grid* grid_ = nullptr;
  const MemoryLookup* lookup_ = nullptr;
  const Heap* heap_ = nullptr;
  bool has_workspace_ = false;
  uint64_t generation_ = ~uint64_t{0};
  std::array<Range, 64> ranges_;
};

enum class Space : uint8_t { kGeneric, kGlobal, kConst, kShared, kSharedCluster, kLocal, kParam };

// The host pointer for `bytes` at `address` in `space` as `lane` sees it; null after raising the fault. `align` is
// normally `bytes`. Slow: RangeFor is the fast way for global memory.
std::byte* ResolveAddress(Warp& w, const Instruction& i, uint32_t lane, Space space, uint64_t address, uint32_t bytes,
                          uint32_t align, bool is_write, MemoryView::Range* range = nullptr);

// The NUL-terminated string at a generic address, at most `limit` bytes; false after raising the fault.
bool ReadString(Warp& w, const Instruction& i, uint32_t lane, uint64_t address, size_t limit, std::string* text);

}  // namespace tally::sim_driver
