#include "scheduler/share_cap.h"

namespace tally::scheduler {

void ShareBucket::Begin(Nanoseconds expected, TimePoint now) {
  const int64_t earliest = (now - kCredit).time_since_epoch().count();
  const int64_t price = PriceOf(expected);
  int64_t until = used_until_ns_.load(std::memory_order_relaxed);
  while (!used_until_ns_.compare_exchange_weak(until, std::max(until, earliest) + price, std::memory_order_relaxed)) {
  }
}

void ShareBucket::Settle(Nanoseconds difference, TimePoint now) {
  const int64_t latest = (now + kLongestDebt).time_since_epoch().count();
  const int64_t price = PriceOf(difference);
  int64_t until = used_until_ns_.load(std::memory_order_relaxed);
  while (!used_until_ns_.compare_exchange_weak(until, std::min(until + price, latest), std::memory_order_relaxed)) {
  }
}

ShareBursts::Answer ShareBursts::Next(const Facts& facts, ShareBucket& bucket, TimePoint now) {
  if (is_open_) {
    const bool has_room = facts.num_put - began_.num_put < allowance_ && facts.busy - began_.busy < kBurst;
    if (has_room) return Answer::kGo;
    if (!facts.is_idle) return Answer::kDrain;
    Close(facts, bucket, now);
  }
  if (bucket.MayGoAt() > now) return Answer::kWait;
  is_open_ = true;
  began_ = facts;
  if (operation_.count() != 0) {
    const auto fitting = static_cast<uint64_t>(kBurst / operation_);
    allowance_ = std::clamp<uint64_t>(fitting, 1, std::min(allowance_ * 4, kMostOperations));
  }
  expected_ = operation_.count() != 0 ? operation_ * static_cast<int64_t>(allowance_) : kFirstGuess;
  bucket.Begin(expected_, now);
  return Answer::kGo;
}

void ShareBursts::End(const Facts& facts, ShareBucket& bucket, TimePoint now) {
  if (is_open_) Close(facts, bucket, now);
}

void ShareBursts::Close(const Facts& facts, ShareBucket& bucket, TimePoint now) {
  is_open_ = false;
  const Nanoseconds used = facts.busy - began_.busy;
  bucket.Settle(used - expected_, now);
  const uint64_t num = facts.num_put - began_.num_put;
  if (num == 0) return;
  const Nanoseconds measured = used / static_cast<int64_t>(num);
  // Longer ones count at once: too many of them would be on their way before it is noticed.
  operation_ = std::max({measured, (operation_ + measured) / 2, Nanoseconds(1)});
}

}  // namespace tally::scheduler
