#include "scheduler/window/window.h"

#include <algorithm>

#include "base/check.h"

namespace tally::scheduler {

Window::Window(size_t capacity, Hazards hazards, size_t most_boxes)
    : capacity_(capacity), hazards_(hazards), index_(hazards, most_boxes) {
  CHECK(capacity >= 1 && capacity <= kMostSlots);
}

std::optional<Window::Entry> Window::Admit(std::span<const Access> accesses, Extent extent) {
  if (is_full()) return std::nullopt;
  if (accesses.size() > kMostAccesses) extent = Extent::kAnything;
  const Slot slot = FirstOf(~pending_);
  if (extent == Extent::kAnything) Close();
  const SlotSet conflicts = Conflicts(slot, accesses, extent) & ~Just(slot);
  SlotSet implied = 0;
  for (SlotSet left = conflicts; left != 0; left = WithoutFirst(left)) implied |= ancestors_[FirstOf(left)];
  ancestors_[slot] = conflicts | implied;
  pending_ |= Just(slot);
  if (extent == Extent::kAnything) closed_ = Just(slot);
  return Entry{slot, conflicts & ~implied};
}

SlotSet Window::Conflicts(Slot slot, std::span<const Access> accesses, Extent extent) {
  SlotSet conflicts = closed_;
  if (extent == Extent::kAnything) return conflicts;
  if (extent == Extent::kReadsAnything) {
    conflicts |= writing_;
    reading_anything_ |= Just(slot);
  }
  bool writes = false;
  for (const Access& access : accesses) {
    writes |= Writes(access.kind);
    conflicts |= index_.Add(slot, access);
  }
  if (writes) {
    writing_ |= Just(slot);
    if (hazards_ == Hazards::kAll) conflicts |= reading_anything_;
  }
  return conflicts;
}

void Window::Complete(Slot slot) {
  CHECK(slot < kMostSlots && (pending_ & Just(slot)) != 0);
  const SlotSet others = ~Just(slot);
  for (SlotSet& ancestors : ancestors_) ancestors &= others;
  pending_ &= others;
  closed_ &= others;
  writing_ &= others;
  reading_anything_ &= others;
  index_.Forget(slot);
}

void Window::Close() {
  for (SlotSet left = pending_; left != 0; left = WithoutFirst(left)) index_.Forget(FirstOf(left));
  writing_ = reading_anything_ = 0;
  // Those that nobody pending is behind: the others come before them.
  SlotSet inner = 0;
  for (SlotSet left = pending_; left != 0; left = WithoutFirst(left)) inner |= ancestors_[FirstOf(left)];
  closed_ = pending_ & ~inner;
}

SlotSet Window::Ready() const {
  SlotSet ready = 0;
  for (SlotSet left = pending_; left != 0; left = WithoutFirst(left)) {
    if (ancestors_[FirstOf(left)] == 0) ready |= Just(FirstOf(left));
  }
  return ready;
}

}  // namespace tally::scheduler
