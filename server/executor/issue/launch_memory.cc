#include "server/executor/issue/launch_memory.h"

#include <algorithm>

namespace tally::server {

const char* WhyNotBeside(LaunchMemory::Sort sort) {
  switch (sort) {
    case LaunchMemory::Sort::kPlain:
      return nullptr;
    case LaunchMemory::Sort::kShared:
      return "shared-memory";
    case LaunchMemory::Sort::kHost:
      return "host-memory";
    case LaunchMemory::Sort::kNone:
      break;
  }
  return "unknown-memory";
}

const char* WhyNotBeside(const scheduler::Box& box, const LaunchMemory& memory) {
  const ptx_transforms::MemorySpan allocation = memory.AllocationOf(box.begin());
  const bool is_inside = allocation.bytes != 0 && box.end() - allocation.address <= allocation.bytes;
  return is_inside ? WhyNotBeside(memory.SortWithin(box.begin(), box.end())) : "unknown-memory";
}

ptx_transforms::MemorySpan MemoryAnswers::AllocationOf(const LaunchMemory& memory, uint64_t address) {
  for (const Allocation& known : allocations_) {
    if (known.address == address) return known.found;
  }
  return allocations_.emplace_back(address, memory.AllocationOf(address)).found;
}

LaunchMemory::Sort MemoryAnswers::SortWithin(const LaunchMemory& memory, uint64_t begin, uint64_t end) {
  return pieces_.emplace_back(begin, end, memory.SortWithin(begin, end)).sort;
}

namespace {

template <typename Answers>
void JoinSorted(Answers& answers, const Answers& others, auto begin) {
  for (const auto& other : others) {
    auto place = std::ranges::lower_bound(answers, begin(other), {}, begin);
    while (place != answers.end() && begin(*place) == begin(other) && *place != other) ++place;
    if (place == answers.end() || *place != other) answers.insert(place, other);
  }
}

}  // namespace

void MemoryAnswers::Join(const MemoryAnswers& others) {
  JoinSorted(allocations_, others.allocations_, [](const Allocation& one) { return one.address; });
  JoinSorted(pieces_, others.pieces_, [](const Piece& one) { return one.begin; });
}

bool MemoryAnswers::Hold(const LaunchMemory& memory) const {
  return std::all_of(allocations_.begin(), allocations_.end(),
                     [&](const Allocation& known) { return memory.AllocationOf(known.address) == known.found; }) &&
         std::all_of(pieces_.begin(), pieces_.end(),
                     [&](const Piece& known) { return memory.SortWithin(known.begin, known.end) == known.sort; });
}

}  // namespace tally::server
