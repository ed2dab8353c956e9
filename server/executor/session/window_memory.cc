#include "server/executor/session/window_memory.h"

#include <algorithm>

namespace tally::server {
namespace {

LaunchMemory::Sort SortOf(MemoryKind kind) {
  switch (kind) {
    // Other devices may access it, too. But other programs and devices learn when by events or from the host, and
    // nothing is held any more by then.
    case MemoryKind::kDevice:
    case MemoryKind::kAsync:
    case MemoryKind::kGlobal:
      return LaunchMemory::Sort::kPlain;
    case MemoryKind::kPinned:
      return LaunchMemory::Sort::kHost;
    // The same physical memory may lie at a second address: mapped twice, opened, or of two graphs.
    case MemoryKind::kGraph:
    case MemoryKind::kOpened:
    case MemoryKind::kForeign:
    case MemoryKind::kMapped:
      return LaunchMemory::Sort::kShared;
  }
  return LaunchMemory::Sort::kShared;
}

}  // namespace

ptx_transforms::MemorySpan WindowMemory::AllocationOf(uint64_t address) const {
  const auto range = map_.RangeAt(address);
  return range ? ptx_transforms::MemorySpan{range->address, range->size_bytes} : ptx_transforms::MemorySpan{};
}

LaunchMemory::Sort WindowMemory::SortWithin(uint64_t begin, uint64_t end) const {
  Sort worst = Sort::kNone;
  map_.AnyWithin(begin, end, [&](const MemoryRange& range) {
    worst = std::max(worst, SortOf(range.kind));
    return worst == Sort::kHost;
  });
  return worst;
}

}  // namespace tally::server
