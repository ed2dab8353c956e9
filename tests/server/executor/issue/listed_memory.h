// Memory that a test lists.
#pragma once

#include <algorithm>
#include <vector>

#include "server/executor/issue/launch_memory.h"

namespace tally::server {

class ListedMemory final : public LaunchMemory {
 public:
  struct Piece {
    uint64_t address = 0;
    uint64_t bytes = 0;
    Sort sort = Sort::kPlain;
  };

  void Set(std::vector<Piece> pieces) {
    pieces_ = std::move(pieces);
    ++generation_;
  }

  uint64_t generation() const override { return generation_; }
  ptx_transforms::MemorySpan AllocationOf(uint64_t address) const override {
    for (const Piece& piece : pieces_) {
      if (address >= piece.address && address - piece.address < piece.bytes) return {piece.address, piece.bytes};
    }
    return {};
  }
  Sort SortWithin(uint64_t begin, uint64_t end) const override {
    Sort worst = Sort::kNone;
    for (const Piece& piece : pieces_) {
      if (begin < piece.address + piece.bytes && piece.address < end) worst = std::max(worst, piece.sort);
    }
    return worst;
  }

 private:
  std::vector<Piece> pieces_;
  uint64_t generation_ = 1;
};

}  // namespace tally::server
