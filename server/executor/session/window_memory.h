// A session's MemoryMap, as its launches in a window ask for it.
#pragma once

#include "server/executor/issue/launch_memory.h"
#include "server/executor/session/memory_map.h"

namespace tally::server {

class WindowMemory final : public LaunchMemory {
 public:
  // `map` outlives this.
  explicit WindowMemory(const MemoryMap& map) : map_(map) {}

  uint64_t generation() const override { return map_.generation(); }
  ptx_transforms::MemorySpan AllocationOf(uint64_t address) const override;
  Sort SortWithin(uint64_t begin, uint64_t end) const override;

 private:
  const MemoryMap& map_;
};

}  // namespace tally::server
