#include "sim-driver/engine/memory_view.h"

#include "sim-driver/engine/access_observer.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/reserved_shared.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

void MemoryView::Attach(const Grid* grid) {
  const MemoryLookup* lookup = grid == nullptr ? nullptr : grid->request.memory.get();
  const Heap* heap = grid == nullptr ? nullptr : grid->heap.get();
  grid_ = grid;
  if (lookup != lookup_ || heap != heap_) {
    lookup_ = lookup;
    heap_ = heap;
    ranges_.fill(Range());
  }
  // Every access of an observed grid is to come by, also one to what an earlier grid used.
  if (grid != nullptr && grid->request.observer != nullptr) ranges_.fill(Range());
  // The workspace of a cooperative grid is no allocation of the lookup: it must not be remembered beyond its grid.
  if (has_workspace_) ranges_.fill(Range());
  has_workspace_ = grid != nullptr && grid->workspace != nullptr;
}

void MemoryView::Forget() {
  // The order matters: an allocation freed after this reading of the generation is noticed next time.
  generation_ = Generation();
  ranges_.fill(Range());
}

bool MemoryView::Find(uint64_t address, Range& range) const {
  if (address >> 56 != 0) return false;
  MemoryRange found = grid_->request.memory->Find(address);
  if (found.size_bytes == 0) found = grid_->heap->Find(address);
  if (found.size_bytes == 0 && grid_->workspace) {
    uint64_t base = reinterpret_cast<uint64_t>(grid_->workspace.get());
    if (address - base < sizeof(Grid::Workspace)) found = {base, sizeof(Grid::Workspace), true};
  }
  if (found.size_bytes == 0 || address - found.base >= found.size_bytes) return false;
  range = {found.base, found.size_bytes, found.is_writable};
  return true;
}

namespace {

const char* SpaceName(Space space) {
  switch (space) {
    case Space::kGeneric:
      return "generic";
    case Space::kGlobal:
      return "global";
    case Space::kConst:
      return "constant";
    case Space::kShared:
    case Space::kSharedCluster:
      return "shared";
    case Space::kLocal:
      return "local";
    case Space::kParam:
      return "parameter";
  }
  return "";
}

std::byte* OutOfBounds(Warp& w, const Instruction& i, uint32_t lane, Space space, uint64_t address, uint32_t bytes,
                       std::string_view detail) {
  RaiseFault(w, i, lane, kFaultIllegalAddress,
             Format("{} bytes at {} address {:#x} are {}", bytes, SpaceName(space), address, detail));
  return nullptr;
}

std::byte* ResolveShared(Warp& w, const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes,
                         bool is_write) {
  uint64_t rank = address >> kSharedRankShift;
  uint64_t offset = address & ((1u << kSharedRankShift) - 1);
  Block* block = w.block;
  if (rank != 0) {
    if (rank > block->cluster->blocks.size())
      return OutOfBounds(w, i, lane, Space::kShared, address, bytes,
                         Format("outside the block's {} bytes", block->shared_bytes));
    block = &block->cluster->blocks[rank - 1];
    if (block->live_threads == 0)
      return OutOfBounds(w, i, lane, Space::kShared, address, bytes, "in a block of the cluster that has ended");
  }
  if (offset >= kReservedSharedOffset && bytes <= kReservedSharedBytes &&
      offset - kReservedSharedOffset <= kReservedSharedBytes - bytes)
    return block->shared + ReservedSharedStart(block->shared_bytes) + (offset - kReservedSharedOffset);
  if (block->shared_bytes < bytes || offset > block->shared_bytes - bytes)
    return OutOfBounds(w, i, lane, Space::kShared, address, bytes,
                       Format("outside the block's {} bytes", block->shared_bytes));
  if (!block->shared_written.empty()) {
    for (uint32_t k = 0; k < bytes; ++k) {
      uint8_t& written = block->shared_written[offset + k];
      if (is_write) written = 1;
      if (!written) {
        RaiseFault(w, i, lane, kFaultLaunchFailed,
                   Format("reads shared memory at {:#x} that nothing has written", offset + k));
        return nullptr;
      }
    }
  }
  return block->shared + offset;
}

}  // namespace

std::byte* ResolveAddress(Warp& w, const Instruction& i, uint32_t lane, Space space, uint64_t address, uint32_t bytes,
                          uint32_t align, bool is_write, MemoryView::Range* range) {
  if ((address & (align - 1)) != 0) {
    RaiseFault(w, i, lane, kFaultMisalignedAddress,
               Format("{} address {:#x} is not a multiple of {}", SpaceName(space), address, align));
    return nullptr;
  }
  uint64_t window = address & kWindowMask;
  if (space == Space::kGeneric && window != 0) {
    uint64_t inside = address & ~kWindowMask;
    if (window == kSharedWindow) return ResolveShared(w, i, lane, inside, bytes, is_write);
    if (window == kLocalWindow) {
      space = Space::kLocal;
      address = inside;
    } else if (window == kParamWindow) {
      space = Space::kParam;
      address = inside;
    } else {
      return OutOfBounds(w, i, lane, space, address, bytes, "no memory");
    }
  }
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster:
      return ResolveShared(w, i, lane, address, bytes, is_write);
    case Space::kLocal: {
      uint32_t size = w.block->cluster->local_stride_bytes;
      if (size < bytes || address > size - bytes)
        return OutOfBounds(w, i, lane, space, address, bytes, "outside the thread's local memory");
      return w.local + size_t{lane} * size + address;
    }
    case Space::kParam: {
      const Grid& grid = *w.block->cluster->grid;
      if (is_write) return OutOfBounds(w, i, lane, space, address, bytes, "read-only");
      if (grid.kernel.parameter_bytes < bytes || address > grid.kernel.parameter_bytes - bytes)
        return OutOfBounds(w, i, lane, space, address, bytes, "outside the kernel's parameters");
      return const_cast<std::byte*>(grid.parameters.data()) + address;
    }
    default:
      break;
  }
  MemoryView::Range local;
  if (!w.memory->Find(address, local))
    return OutOfBounds(w, i, lane, space, address, bytes,
                       address < 4096 ? "not in any allocation (a null pointer?)" : "not in any allocation");
  if (!local.Contains(address, bytes))
    return OutOfBounds(w, i, lane, space, address, bytes,
                       Format("partly outside the allocation of {} bytes at {:#x}", local.size_bytes, local.base));
  if (is_write && (!local.is_writable || space == Space::kConst))
    return OutOfBounds(w, i, lane, space, address, bytes, "read-only");
  if (const AccessObserver* observer = w.block->cluster->grid->request.observer.get()) {
    observer->OnAccess({.address = address, .bytes = bytes, .is_write = is_write, .warp = w, .instruction = i});
  } else if (range != nullptr) {
    *range = local;
  }
  return reinterpret_cast<std::byte*>(address);
}

bool ReadString(Warp& w, const Instruction& i, uint32_t lane, uint64_t address, size_t limit, std::string* text) {
  text->clear();
  while (text->size() < limit) {
    const std::byte* at = ResolveAddress(w, i, lane, Space::kGeneric, address++, 1, 1, false);
    if (at == nullptr) return false;
    if (*at == std::byte{0}) return true;
    text->push_back(static_cast<char>(*at));
  }
  return true;
}

}  // namespace tally::sim_driver
