// ConflictIndex: which pending launches a new one must come behind, by the memory that they read and write.
//
// Per box of memory: who writes it and who has read it since. A launch that reads comes behind the writers of what
// overlaps its box; one that writes, behind writers and readers. A write takes the place of all that lies within its
// box: who conflicts with one of those conflicts with the write, which comes behind them. So what is asked of the index
// grows with the memory in use, not with the number of pending launches.
//
//      launch 0 writes A        A: written by 0
//      launch 1 reads A         A: written by 0, read by 1          1 behind 0  (read after write)
//      launch 2 writes A        A: written by 2                     2 behind 0 and 1  (write after write, after read)
//
// ACS (arXiv 2401.12377) compares the new launch's write segments alone, with all segments of each pending launch:
// launch 1 above would start at once. Here all three hazards count.
//
// Allocations need not be known. Whole ones are boxes of their full length; a free writes all of its allocation, so
// launches that use the addresses again find the free and nothing older.
//
// Boxes are kept by address in tiers of similar length, so a long one (a whole allocation) is not in the way of the
// many short ones inside it. A box stays after its launches, because programs use the same memory again; boxes that
// nobody pending uses go when there is no room. If all are in use, what is new widens one plain range around all such
// accesses: more launches conflict then, never fewer.
//
// Cost of an access: a binary search per tier in use, and a step per box that is near. A box not seen before moves
// those behind it (24 bytes each). Memory is bounded, at most 1 KB a box (many tiers) and mostly 80 bytes; nothing
// allocates once a tier has had its largest number of boxes. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/window/access.h"

namespace tally::scheduler {

class ConflictIndex {
 public:
  static constexpr size_t kMostBoxes = 512;

  // `most_boxes`: to be kept exactly, 1 to 65535.
  explicit ConflictIndex(Hazards hazards = Hazards::kAll, size_t most_boxes = kMostBoxes);

  // Notes the access of a launch that is being admitted. Returns the pending launches that must come before it for
  // that; itself among them if it accesses the memory more than once.
  SlotSet Add(Slot slot, const Access& access);
  // No longer returned: the launch is complete, or whatever comes is behind it by other means.
  void Forget(Slot slot);
  size_t num_boxes() const { return pieces_.size() - unused_pieces_.size(); }

 private:
  struct Use {
    SlotSet writers = 0;
    SlotSet readers = 0;  // since the last write that covered the box; writers that read are not among them
    bool is_free() const { return (writers | readers) == 0; }
  };
  struct Piece {
    Box box;
    Use use;
  };
  // A piece's place in the order of addresses.
  struct Place {
    uint64_t begin;
    uint64_t end;
    uint16_t piece;
  };
  // Boxes of 4^i to 4^(i+1) - 1 bytes, by begin.
  struct Tier {
    std::vector<Place> places;
    uint64_t longest = 0;  // of its boxes, at least
  };
  static constexpr size_t kNumTiers = 32;
  // Pieces that a slot remembers to have used. With more it looks at all when it is forgotten.
  static constexpr size_t kMostUsed = 16;
  struct UsedPieces {
    std::array<uint16_t, kMostUsed> pieces;
    uint16_t count = 0;  // kMostUsed + 1: more than there is room for
  };

  SlotSet Conflicting(const Use& use, AccessKind kind) const;
  void Note(uint16_t piece, Slot slot, AccessKind kind);
  void NoteBeyond(Slot slot, const Access& access);
  void Insert(Slot slot, const Access& access);
  bool MakeRoom();
  void DropUnused();

  const Hazards hazards_;
  const size_t most_boxes_;
  uint32_t tiers_in_use_ = 0;  // bit i: tier i has boxes
  std::array<Tier, kNumTiers> tiers_;
  std::vector<Piece> pieces_;
  std::vector<uint16_t> unused_pieces_;  // places in pieces_ without a box
  std::array<UsedPieces, kMostSlots> used_{};
  size_t num_before_drop_ = 0;  // so many more find no room before unused boxes are looked for again
  // What found no room: by whom, and a range around all of it.
  Use beyond_;
  uint64_t beyond_begin_ = 0;
  uint64_t beyond_end_ = 0;
};

}  // namespace tally::scheduler
