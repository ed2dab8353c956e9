#include "scheduler/fair_queue.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tally::scheduler {

void FairQueue::Add(uint32_t index, uint32_t weight) {
  if (index >= members_.size()) members_.resize(index + 1);
  CHECK(!members_[index].is_joined && weight > 0);
  members_[index] = {.weight = weight};
  members_[index].round = round_;
  members_[index].credit = Share(members_[index]);
}

void FairQueue::Remove(uint32_t index) { Leave(index); }

void FairQueue::SetWeight(uint32_t index, uint32_t weight) {
  Member& member = members_[index];
  CHECK(weight > 0);
  Renew(member);
  // What it owes (or may still use) stays; how fast that is paid off changes.
  const int64_t rounds_to_wait = static_cast<int64_t>(member.round - round_);
  member.credit -= rounds_to_wait * Share(member);
  const int64_t old_share = Share(member);
  member.weight = weight;
  if (member.credit > 0) member.credit = std::max<int64_t>(1, member.credit - old_share + Share(member));
  if (member.is_joined) Unlink(index);
  member.round = round_;
  const bool was_joined = member.is_joined;
  member.is_joined = false;
  Settle(index);
  member.is_joined = was_joined;
  if (was_joined) Link(index);
}

// Its last turn is over and was not used up: a new one begins, and nothing is left of the old.
void FairQueue::Renew(Member& member) const {
  if (member.round >= round_) return;
  member.round = round_;
  member.credit = Share(member);
}

void FairQueue::Join(uint32_t index) {
  Member& member = members_[index];
  if (member.is_expected) {
    member.is_expected = false;
    --num_expected_;
  }
  if (member.is_joined) return;
  Renew(member);
  member.is_joined = true;
  ++num_joined_;
  Link(index);
}

void FairQueue::Leave(uint32_t index) {
  Member& member = members_[index];
  if (!member.is_joined) return;
  Unlink(index);
  member.is_joined = false;
  --num_joined_;
  if (!member.is_expected) return;
  member.is_expected = false;
  --num_expected_;
}

void FairQueue::LeaveUntil(uint32_t index, TimePoint until) {
  Member& member = members_[index];
  member.expected_until = until;
  if (!member.is_joined || member.is_expected) return;
  member.is_expected = true;
  ++num_expected_;
}

std::optional<uint32_t> FairQueue::Next(TimePoint now, bool may_expect) {
  while (!empty()) {
    const auto from = static_cast<uint32_t>(round_ % kNumBuckets);
    const uint32_t bucket = NextBucketWithMembers(from);
    const uint32_t first = buckets_[bucket];
    if (members_[first].is_expected && (!may_expect || members_[first].expected_until <= now)) {
      Leave(first);
      continue;
    }
    if (members_[first].credit > 0) return first;
    // Its debt exceeds the circle, and nobody comes before it.
    Begin(first);
    Settle(first);
  }
  return std::nullopt;
}

std::optional<uint32_t> FairQueue::NextReady(TimePoint now, bool may_expect) {
  std::optional<uint32_t> member = Next(now, may_expect);
  waits_until_.reset();
  if (member && members_[*member].is_expected) waits_until_ = members_[*member].expected_until;
  while (member && members_[*member].is_expected) member = NextOfRound(*member);
  return member;
}

std::optional<uint32_t> FairQueue::NextOfRound(uint32_t member) const {
  const uint32_t next = members_[member].next;
  if (next == kNone || members_[next].credit <= 0) return std::nullopt;
  return next;
}

void FairQueue::Charge(uint32_t index, Nanoseconds time) {
  Member& member = members_[index];
  Renew(member);
  member.credit -= time.count();
  Settle(index);
}

void FairQueue::Settle(uint32_t index) {
  Member& member = members_[index];
  const int64_t share = Share(member);
  uint64_t round = member.round;
  if (member.credit <= 0) {
    // Later. No further than the circle reaches; the rest of the debt is looked at then.
    const auto farthest = static_cast<int64_t>(round_ + kNumBuckets - 1 - round);
    const int64_t rounds = std::min(-member.credit / share + 1, farthest);
    round += static_cast<uint64_t>(rounds);
    member.credit += rounds * share;
  } else if (member.credit > share && round > round_) {
    // It paid too much: earlier.
    const int64_t rounds = std::min((member.credit - 1) / share, static_cast<int64_t>(round - round_));
    round -= static_cast<uint64_t>(rounds);
    member.credit -= rounds * share;
  }
  if (round == member.round) return;
  if (!member.is_joined) {
    member.round = round;
    return;
  }
  Unlink(index);
  member.round = round;
  Link(index);
}

void FairQueue::Link(uint32_t index) {
  Member& member = members_[index];
  const auto bucket = static_cast<uint32_t>(member.round % kNumBuckets);
  uint32_t& first = buckets_[bucket];
  member.next = kNone;
  if (first == kNone) {
    member.previous = index;
    first = index;
    has_members_[bucket / 64] |= uint64_t{1} << (bucket % 64);
    summary_ |= uint64_t{1} << (bucket / 64);
    return;
  }
  member.previous = members_[first].previous;
  members_[member.previous].next = index;
  members_[first].previous = index;
}

void FairQueue::Unlink(uint32_t index) {
  Member& member = members_[index];
  const auto bucket = static_cast<uint32_t>(member.round % kNumBuckets);
  uint32_t& first = buckets_[bucket];
  if (first == index) {
    first = member.next;
    if (first == kNone) {
      has_members_[bucket / 64] &= ~(uint64_t{1} << (bucket % 64));
      if (has_members_[bucket / 64] == 0) summary_ &= ~(uint64_t{1} << (bucket / 64));
    } else {
      members_[first].previous = member.previous;
    }
  } else {
    members_[member.previous].next = member.next;
    members_[member.next == kNone ? first : member.next].previous = member.previous;
  }
  member.previous = member.next = kNone;
}

// There is one. The circle is searched from `from` on, `from` included.
uint32_t FairQueue::NextBucketWithMembers(uint32_t from) const {
  const uint32_t word = from / 64;
  const uint64_t here = has_members_[word] & (~uint64_t{0} << (from % 64));
  if (here != 0) return word * 64 + static_cast<uint32_t>(std::countr_zero(here));
  // The words after this one, then those before it, then this one's beginning: rotate the summary so that it is last.
  const uint64_t rotated = std::rotr(summary_, static_cast<int>((word + 1) % 64));
  CHECK(rotated != 0);
  const uint32_t found = (word + 1 + static_cast<uint32_t>(std::countr_zero(rotated))) % 64;
  return found * 64 + static_cast<uint32_t>(std::countr_zero(has_members_[found]));
}

}  // namespace tally::scheduler
