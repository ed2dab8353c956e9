#include "client-shim/state/managed_advice.h"

#include <algorithm>
#include <iterator>

namespace tally::client_shim {

void ManagedAdvice::SplitLocked(uint64_t address) {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return;
  const auto around = std::prev(after);
  if (around->first == address || around->second.end <= address) return;
  ranges_.emplace_hint(after, address, around->second);
  around->second.end = address;
}

// Neighbours that say the same become one, and those that say nothing go.
void ManagedAdvice::JoinLocked(uint64_t begin, uint64_t end) {
  auto it = ranges_.lower_bound(begin);
  if (it != ranges_.begin()) --it;
  while (it != ranges_.end() && it->first <= end) {
    if (it->second.advice == Advice{}) {
      it = ranges_.erase(it);
      continue;
    }
    const auto next = std::next(it);
    if (next != ranges_.end() && next->first == it->second.end && next->second.advice == it->second.advice) {
      it->second.end = next->second.end;
      ranges_.erase(next);
      continue;
    }
    ++it;
  }
}

void ManagedAdvice::Change(uint64_t address, uint64_t size_bytes, const std::function<void(Advice*)>& change) {
  if (size_bytes == 0) return;
  const uint64_t end = address + size_bytes;
  const std::lock_guard lock(mutex_);
  SplitLocked(address);
  SplitLocked(end);
  uint64_t reached = address;
  for (auto it = ranges_.lower_bound(address); reached < end;) {
    const uint64_t next = it != ranges_.end() ? std::min(it->first, end) : end;
    if (reached < next) ranges_.emplace_hint(it, reached, Range{next, {}});  // a gap
    reached = next;
    if (it == ranges_.end() || it->first >= end) break;
    reached = it->second.end;
    ++it;
  }
  for (auto it = ranges_.lower_bound(address); it != ranges_.end() && it->first < end; ++it) change(&it->second.advice);
  JoinLocked(address, end);
}

void ManagedAdvice::Visit(uint64_t address, uint64_t size_bytes,
                          const std::function<void(const Advice&)>& visit) const {
  const uint64_t end = address + size_bytes;
  const std::lock_guard lock(mutex_);
  uint64_t reached = address;
  auto it = ranges_.upper_bound(address);
  if (it != ranges_.begin() && std::prev(it)->second.end > address) --it;
  for (; it != ranges_.end() && it->first < end; ++it) {
    if (it->first > reached) visit(Advice{});
    visit(it->second.advice);
    reached = it->second.end;
  }
  if (reached < end) visit(Advice{});
}

void ManagedAdvice::Forget(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  SplitLocked(address);
  SplitLocked(address + size_bytes);
  ranges_.erase(ranges_.lower_bound(address), ranges_.lower_bound(address + size_bytes));
}

size_t ManagedAdvice::num_ranges() const {
  const std::lock_guard lock(mutex_);
  return ranges_.size();
}

}  // namespace tally::client_shim
