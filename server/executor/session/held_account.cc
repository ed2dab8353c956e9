#include "server/executor/session/held_account.h"

namespace tally::server {

bool HeldCounts::Take(Held kind, uint64_t amount, uint64_t limit) {
  std::atomic<uint64_t>& count = counts_[static_cast<size_t>(kind)];
  uint64_t before = count.load(std::memory_order_relaxed);
  do {
    if (before > limit || amount > limit - before) return false;
  } while (!count.compare_exchange_weak(before, before + amount, std::memory_order_relaxed));
  return true;
}

void HeldCounts::Return(Held kind, uint64_t amount) {
  counts_[static_cast<size_t>(kind)].fetch_sub(amount, std::memory_order_relaxed);
}

std::shared_ptr<HeldCounts> HeldByUsers::Of(uid_t uid) {
  const std::lock_guard lock(mutex_);
  std::erase_if(users_, [&](const auto& entry) { return entry.first != uid && entry.second.expired(); });
  std::weak_ptr<HeldCounts>& known = users_[uid];
  std::shared_ptr<HeldCounts> counts = known.lock();
  if (counts == nullptr) known = counts = std::make_shared<HeldCounts>();
  return counts;
}

void HeldAccount::ReturnAll() {
  for (size_t i = 0; i < kNumHeld; ++i) {
    const auto kind = static_cast<Held>(i);
    Return(kind, session_.count(kind));
  }
}

bool HeldAccount::Take(Held kind, uint64_t amount) {
  const auto index = static_cast<size_t>(kind);
  if (!session_.Take(kind, amount, session_limits_[index])) return false;
  if (user_->Take(kind, amount, user_limits_[index])) return true;
  session_.Return(kind, amount);
  return false;
}

void HeldAccount::Return(Held kind, uint64_t amount) {
  session_.Return(kind, amount);
  user_->Return(kind, amount);
}

}  // namespace tally::server
