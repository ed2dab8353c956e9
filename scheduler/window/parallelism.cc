#include "scheduler/window/parallelism.h"

#include <algorithm>

namespace tally::scheduler {

void WindowParallelism::Add(std::span<const Access> accesses, Extent extent, Nanoseconds duration) {
  work_ += duration;
  all_.Add(accesses, extent, duration);
  read_after_write_.Add(accesses, extent, duration);
}

void WindowParallelism::Close() {
  all_.Close();
  read_after_write_.Close();
}

void WindowParallelism::TimeLine::Add(std::span<const Access> accesses, Extent extent, Nanoseconds duration) {
  if (window_.is_full()) CompleteNext();
  const Window::Entry entry = *window_.Admit(accesses, extent);
  Nanoseconds begin = now_;
  for (SlotSet left = entry.edges; left != 0; left = WithoutFirst(left)) {
    begin = std::max(begin, ends_[FirstOf(left)]);
  }
  ends_[entry.slot] = begin + duration;
  longest_ = std::max(longest_, begin + duration);
}

void WindowParallelism::TimeLine::CompleteNext() {
  Slot next = FirstOf(window_.pending());
  for (SlotSet left = window_.pending(); left != 0; left = WithoutFirst(left)) {
    if (ends_[FirstOf(left)] < ends_[next]) next = FirstOf(left);
  }
  now_ = std::max(now_, ends_[next]);
  window_.Complete(next);
}

}  // namespace tally::scheduler
