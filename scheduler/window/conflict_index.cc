#include "scheduler/window/conflict_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tally::scheduler {
namespace {

size_t TierOf(uint64_t length) { return static_cast<size_t>(std::bit_width(length) - 1) / 2; }

}  // namespace

ConflictIndex::ConflictIndex(Hazards hazards, size_t most_boxes) : hazards_(hazards), most_boxes_(most_boxes) {
  CHECK(most_boxes >= 1 && most_boxes <= UINT16_MAX);
  pieces_.reserve(most_boxes);
  unused_pieces_.reserve(most_boxes);
}

SlotSet ConflictIndex::Add(Slot slot, const Access& access) {
  const Box& box = access.box;
  SlotSet found = 0;
  if (box.begin() < beyond_end_ && beyond_begin_ < box.end()) found = Conflicting(beyond_, access.kind);
  bool is_known = false;
  for (uint32_t tiers = tiers_in_use_; tiers != 0; tiers &= tiers - 1) {
    const Tier& tier = tiers_[static_cast<size_t>(std::countr_zero(tiers))];
    // From the last box that begins before this one's end, down to where even the longest ends before its begin.
    auto place = std::ranges::lower_bound(tier.places, box.end(), {}, &Place::begin);
    const uint64_t lowest = box.begin() < tier.longest ? 0 : box.begin() - tier.longest;
    while (place != tier.places.begin()) {
      --place;
      if (place->end <= box.begin()) {
        if (place->begin < lowest) break;
        continue;
      }
      Piece& piece = pieces_[place->piece];
      if (piece.box == box) {
        found |= Conflicting(piece.use, access.kind);
        Note(place->piece, slot, access.kind);
        is_known = true;
      } else if (!piece.use.is_free() && box.Overlaps(piece.box)) {
        found |= Conflicting(piece.use, access.kind);
        if (Writes(access.kind) && box.Covers(piece.box)) piece.use = {};
      }
    }
  }
  if (!is_known) Insert(slot, access);
  return found;
}

void ConflictIndex::Forget(Slot slot) {
  const SlotSet others = ~Just(slot);
  const auto forget = [others](Use* use) {
    use->writers &= others;
    use->readers &= others;
  };
  UsedPieces& used = used_[slot];
  if (used.count <= kMostUsed) {
    for (size_t i = 0; i < used.count; ++i) forget(&pieces_[used.pieces[i]].use);
  } else {
    for (Piece& piece : pieces_) forget(&piece.use);
  }
  used.count = 0;
  forget(&beyond_);
  if (beyond_.is_free()) beyond_begin_ = beyond_end_ = 0;
}

SlotSet ConflictIndex::Conflicting(const Use& use, AccessKind kind) const {
  if (hazards_ == Hazards::kReadAfterWrite) return Reads(kind) ? use.writers : 0;
  return Writes(kind) ? use.writers | use.readers : use.writers;
}

void ConflictIndex::Note(uint16_t piece, Slot slot, AccessKind kind) {
  Use& use = pieces_[piece].use;
  if (Writes(kind)) {
    use = {.writers = Just(slot)};
  } else {
    use.readers |= Just(slot);
  }
  UsedPieces& used = used_[slot];
  if (used.count < kMostUsed) used.pieces[used.count] = piece;
  if (used.count <= kMostUsed) ++used.count;
}

void ConflictIndex::NoteBeyond(Slot slot, const Access& access) {
  // Others stay: the range is wider than what any of them accesses.
  (Writes(access.kind) ? beyond_.writers : beyond_.readers) |= Just(slot);
  const bool is_first = beyond_end_ == 0;
  beyond_begin_ = is_first ? access.box.begin() : std::min(beyond_begin_, access.box.begin());
  beyond_end_ = std::max(beyond_end_, access.box.end());
}

void ConflictIndex::Insert(Slot slot, const Access& access) {
  if (!MakeRoom()) return NoteBeyond(slot, access);
  uint16_t piece = static_cast<uint16_t>(pieces_.size());
  if (unused_pieces_.empty()) {
    pieces_.push_back({access.box, {}});
  } else {
    piece = unused_pieces_.back();
    unused_pieces_.pop_back();
    pieces_[piece] = {access.box, {}};
  }
  Note(piece, slot, access.kind);
  const size_t index = TierOf(access.box.length());
  Tier& tier = tiers_[index];
  const auto place = std::ranges::upper_bound(tier.places, access.box.begin(), {}, &Place::begin);
  tier.places.insert(place, {access.box.begin(), access.box.end(), piece});
  tier.longest = std::max(tier.longest, access.box.length());
  tiers_in_use_ |= uint32_t{1} << index;
}

// If nearly all boxes are in use, looking for the others each time would cost more than they are worth.
bool ConflictIndex::MakeRoom() {
  if (num_boxes() < most_boxes_) return true;
  if (num_before_drop_ != 0) {
    --num_before_drop_;
    return false;
  }
  DropUnused();
  const size_t num_free = most_boxes_ - num_boxes();
  if (num_free < most_boxes_ / 8) num_before_drop_ = most_boxes_ / 8;
  return num_free != 0;
}

void ConflictIndex::DropUnused() {
  tiers_in_use_ = 0;
  for (size_t i = 0; i < kNumTiers; ++i) {
    Tier& tier = tiers_[i];
    std::erase_if(tier.places, [this](const Place& place) {
      const bool is_unused = pieces_[place.piece].use.is_free();
      if (is_unused) unused_pieces_.push_back(place.piece);
      return is_unused;
    });
    tier.longest = 0;
    for (const Place& place : tier.places) tier.longest = std::max(tier.longest, place.end - place.begin);
    if (!tier.places.empty()) tiers_in_use_ |= uint32_t{1} << i;
  }
}

}  // namespace tally::scheduler
